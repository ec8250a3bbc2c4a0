// tracestep pivot as a person uses it: a stored result with one key across.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/input_file.h"
#include "cli/run_binary.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;

class PivotTest : public ::testing::Test {
 protected:
  PivotTest() {
    folder_.write("bench.json", R"({"schema": "tracestep.bench/1", "environment": {"os": "x"},
      "table": "bench", "columns": {
        "size": {"kind": "text", "role": "key"}, "context": {"kind": "int", "role": "key"},
        "mode": {"kind": "text", "role": "key"}, "status": {"kind": "text"},
        "samples_ms": {"kind": "reals", "role": "samples", "unit": "ms"},
        "peak_bytes": {"kind": "bytes", "role": "exact", "title": "peak"}},
      "rows": [)" + row("small", 1024, "step", "ok", "[10, 12]", "1073741824") +
                                    "," + row("small", 512, "step", "ok", "[4, 4]", "1048576") +
                                    "," + row("tiny", 512, "step", "ok", "[1, 1]", "2048") + "," +
                                    row("tiny", 1024, "step", "oom", "null", "null") + "]}");
  }
  static std::string row(const char* size, int context, const char* mode, const char* status,
                         const char* samples, const char* peak) {
    return fmt::format(R"({{"size": "{}", "context": {}, "mode": "{}", "status": "{}",)"
                       R"("samples_ms": {}, "peak_bytes": {}}})",
                       size, context, mode, status, samples, peak);
  }
  ProgramRun run(const std::string& words) const {
    return run_tracestep(words_of("pivot " + words), {.folder = folder_.path()});
  }

  TempFolder folder_;
};

TEST_F(PivotTest, ContextsStandAcrossByTheirSizeAndOomSaysSo) {
  const ProgramRun shown = run("bench.json --format csv");
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("size,512,1024"));
  EXPECT_THAT(shown.out, HasSubstr("small,4.000 ± 0.000 ms,11.0 ± 1.4 ms"));
  EXPECT_THAT(shown.out, HasSubstr("tiny,1.000 ± 0.000 ms,OOM"));
}

TEST_F(PivotTest, AnotherValueAndAnotherKeyAcross) {
  const std::string shown = run("bench.json --value peak_bytes --across size --down context").out;
  EXPECT_THAT(shown, HasSubstr("bench: peak, each size in a column (mode step)"));
  EXPECT_EQ(run("bench.json --value peak --across size --down context").out, shown);
  EXPECT_THAT(shown, ::testing::ContainsRegex("512 +1.00 MiB +2.00 KiB"));
  EXPECT_THAT(shown, ::testing::ContainsRegex("1024 +1.00 GiB +OOM"));
}

TEST_F(PivotTest, KeysThatTellRowsApartGoDownUnasked) {
  const ProgramRun shown = run("bench.json --across mode --down size --format csv");
  EXPECT_THAT(shown.out, HasSubstr("size,context,step"));
  EXPECT_THAT(shown.out, HasSubstr("small,512,4.000 ± 0.000 ms"));
}

TEST_F(PivotTest, RowsThatNothingTellsApartAreRefused) {
  std::string text = read_text_file(folder_ / "bench.json", "bench.json", 1 << 20);
  text.replace(text.find("\"context\": 512"), 14, "\"context\": 1024");
  folder_.write("twice.json", text);
  const ProgramRun shown = run("twice.json");
  EXPECT_EQ(shown.status, 3);
  EXPECT_THAT(shown.err, HasSubstr("two rows are alike in all keys"));
}

TEST_F(PivotTest, WhatIsNotThereIsNamedWithWhatIs) {
  const ProgramRun column = run("bench.json --across contxt");
  EXPECT_EQ(column.status, 2);
  EXPECT_THAT(column.err, HasSubstr("did you mean context?"));
  const ProgramRun table = run("bench.json --table kernels");
  EXPECT_EQ(table.status, 2);
  EXPECT_THAT(table.err, HasSubstr("there are bench"));
  EXPECT_EQ(run("nothing.json").status, 3);
}

TEST_F(PivotTest, AFileOfAnotherKindIsRefused) {
  folder_.write("list.json", "[1, 2]");
  folder_.write("cell.json", R"({"schema": "tracestep.bench/1", "environment": {},
    "columns": {"context": {"kind": "int", "role": "key"}}, "rows": [{"context": "long"}]})");
  EXPECT_EQ(run("list.json").status, 3);
  folder_.write("none.json", R"({"schema": "x/1", "environment": {}, "rows": [], "tables": {}})");
  const ProgramRun none = run("none.json");
  EXPECT_EQ(none.status, 3);
  EXPECT_THAT(none.err, HasSubstr("it is no result: there are no rows in it"));
  const ProgramRun cell = run("cell.json");
  EXPECT_EQ(cell.status, 3);
  EXPECT_THAT(cell.err, HasSubstr("where its kind is int"));
}

}  // namespace
}  // namespace tracestep
