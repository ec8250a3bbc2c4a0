#include "base/own_file.h"

#include <gtest/gtest.h>

#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

// These files were written before outputs had a mark, or by the tools of bench/.
TEST(OwnFileTest, TheStoredResultsOfEarlierVersionsAreOurs) {
  int count = 0;
  const auto results = testing::source_folder() / "bench/results";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(results)) {
    const auto ending = entry.path().extension();
    if (ending != ".svg" && ending != ".html" && ending != ".csv") continue;
    EXPECT_TRUE(is_own(content_of(entry.path()), {})) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 3);
}

TEST(OwnFileTest, WeightsAndTracesOfEarlierVersionsAreOurs) {
  EXPECT_TRUE(is_own(std::string("\x90\0\0\0\0\0\0\0", 8) +
                         R"({"__metadata__":{"d_ff":"8","d_model":"8","format":"pt","heads":"1"}})",
                     {}));
  EXPECT_TRUE(
      is_own("{\"schemaVersion\": 1,\n\"deviceProperties\": [],\n"
             "\"tool\": \"tracestep 1.0\",\n\"traceEvents\": []}",
             {}));
}

TEST(OwnFileTest, ALogThatWasCutInItsFirstLineIsOurs) {
  const std::string line = R"({"step":1,"loss":2.5,"grad_norm":1,"lr":0.001})";
  for (std::size_t size = 8; size < line.size(); ++size) {
    EXPECT_TRUE(is_own(line.substr(0, size), {})) << size;
  }
  EXPECT_TRUE(is_own(line + "\n", {}));
  EXPECT_FALSE(is_own(R"({"step":1,"loss":2.5})", {}));
}

// These are texts about the program, and results inside of other files.
TEST(OwnFileTest, WhatOnlySpeaksOfTheProgramIsNotOurs) {
  for (const char* text :
       {"# tracestep\n", "# How tracestep.bench/1 is read\n", "tracestep.bench/1", "// tracestep",
        R"({"mine":{"schema":"tracestep.bench/1"}})", R"([{"schema":"tracestep.bench/1"}])",
        "name,\"value\"\r\n1,2\r\n", "\"name\",value\n1,2\n", "<!-- tracestep -->",
        "<!DOCTYPE html><html><head><title>tracestep</title></head></html>"}) {
    EXPECT_FALSE(is_own(text, text)) << text;
  }
}

}  // namespace
}  // namespace tracestep
