#include "lab/measure/environment.h"

#include <gtest/gtest.h>

namespace tracestep {
namespace {

TEST(EnvironmentTest, TheMachineAndTheBuildAreNamed) {
  const Json e = capture_environment({}, 3);
  EXPECT_TRUE(e.at("tool").as_string().starts_with("tracestep "));
  std::string date = e.at("date_utc").as_string();
  for (char& c : date) c = c >= '0' && c <= '9' ? '9' : c;
  EXPECT_EQ(date, "9999-99-99T99:99:99Z");
  EXPECT_EQ(e.at("threads").as_int(), 3);
  EXPECT_EQ(e.at("cores").as_int(), allowed_cores());
  EXPECT_GE(allowed_cores(), 1);
  EXPECT_GT(e.at("memory_total_bytes").as_int(), 1 << 20);
  for (const char* key : {"commit", "compiler", "build_type", "cpu", "simd", "kernel", "libc"}) {
    EXPECT_NE(e.find(key), nullptr) << key;
  }
  EXPECT_EQ(Json::parse(e.dump(2), "environment"), e);
}

TEST(EnvironmentTest, FoldersAreRemovedFromArguments) {
  EXPECT_EQ(without_folders("./build/tracestep"), "tracestep");
  EXPECT_EQ(without_folders("--tokens=/home/me/x.bin"), "--tokens=x.bin");
  EXPECT_EQ(without_folders("/data/text/"), "text/");
  EXPECT_EQ(without_folders("/"), "/");
  EXPECT_EQ(without_folders("--output="), "--output=");
  EXPECT_EQ(without_folders("128,256"), "128,256");
}

TEST(EnvironmentTest, NothingNamesAPerson) {
  const std::vector<std::string> command = {"/home/somebody/tracestep", "--output=/secret/a.json"};
  const std::string text = capture_environment(command).dump();
  EXPECT_EQ(text.find("somebody"), std::string::npos);
  EXPECT_EQ(text.find("secret"), std::string::npos);
}

}  // namespace
}  // namespace tracestep
