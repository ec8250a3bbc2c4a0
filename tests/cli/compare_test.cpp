// compare: two results of bench, from files to exit status.
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run_binary.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

// One row of `bench` with ten samples around `ms`.
std::string result(double ms) {
  Json samples = Json::array();
  for (int i = 0; i < 10; ++i) samples.push_back(ms * (1 + 0.001 * i));
  Json row = Json::object();
  row["size"] = "tiny";
  row["mode"] = "step";
  row["status"] = "ok";
  row["samples_ms"] = samples;
  Json rows = Json::array();
  rows.push_back(row);
  Json out = Json::object();
  out["schema"] = "tracestep.bench/1";
  out["environment"] = Json::object();
  out["rows"] = rows;
  return out.dump();
}

TEST(CompareCommandTest, ARegressionEndsWithStatusOne) {
  const TempFolder folder;
  folder.write("a.json", result(100));
  folder.write("b.json", result(110));
  const RunHow here{.folder = folder.path()};
  EXPECT_EQ(run_tracestep(words_of("compare a.json b.json"), here).status, 0);
  const ProgramRun gate =
      run_tracestep(words_of("compare a.json b.json --fail-on-regression 5 --format json"), here);
  EXPECT_EQ(gate.status, 1);
  EXPECT_TRUE(contains(gate.err, "regression: tiny step: +10.0 %")) << gate.err;
  const Json out = Json::parse(gate.out, "compare");
  EXPECT_EQ(out.at("schema").as_string(), "tracestep.compare/1");
  const Json& row = out.at("tables").at("compare").at("rows").items().at(0);
  EXPECT_EQ(row.at("verdict").as_string(), "slower");
  EXPECT_EQ(run_tracestep(words_of("compare --fail-on-regression 20 a.json b.json"), here).status,
            0);
}

TEST(CompareCommandTest, AGateThatCannotBeJudgedEndsWithStatusSevenAndSaysWhy) {
  const TempFolder folder;
  Json document = Json::parse(result(100), "a");
  folder.write("a.json", document.dump());
  document["rows"] = Json::array();
  folder.write("empty.json", document.dump());
  // Three times slower, and the median is not that of the samples.
  document = Json::parse(result(300), "b");
  Json row = document.at("rows").items()[0];
  row["median_ms"] = 1.0;
  document["rows"] = Json::Array{row};
  folder.write("invalid.json", document.dump());
  row["samples_ms"] = Json::array();
  document["rows"] = Json::Array{row};
  folder.write("nothing.json", document.dump());
  const RunHow here{.folder = folder.path()};
  const std::pair<const char*, const char*> cases[] = {
      {"empty.json", "cannot be judged: tiny step: only in A"},
      {"invalid.json", "cannot be judged: tiny step: B invalid: unit_mix_up"},
      {"nothing.json", "cannot be judged: tiny step: no samples in B"}};
  for (const auto& [file, why] : cases) {
    const std::string call = std::string("compare a.json ") + file;
    EXPECT_EQ(run_tracestep(words_of(call), here).status, 0) << file;
    const ProgramRun gate = run_tracestep(words_of(call + " --fail-on-regression 5"), here);
    EXPECT_EQ(gate.status, 7) << file;
    EXPECT_TRUE(contains(gate.err, why));
  }
  const ProgramRun published =
      run_tracestep(words_of("compare a.json --published --fail-on-regression 5"), here);
  EXPECT_EQ(published.status, 2) << published.err;
}

TEST(CompareCommandTest, FilesThatAreNoResultsAreNamed) {
  const TempFolder folder;
  folder.write("a.json", result(100));
  folder.write("b.json", "{\"rows\": []}");
  folder.write("c.json", "{\"schema\": \"tracestep.doctor/1\"}");
  const std::string bench = "{\"schema\": \"tracestep.bench/1\"";
  folder.write("d.json", bench + ", \"rows\": []}");
  folder.write("e.json", bench + ", \"environment\": {}, \"rows\": 1}");
  const RunHow here{.folder = folder.path()};
  for (const std::string file : {"d.json", "e.json"}) {
    for (const std::string& call : {"compare a.json " + file, "explain warm-up --from " + file}) {
      const ProgramRun run = run_tracestep(words_of(call), here);
      EXPECT_EQ(run.status, 3) << call;
      EXPECT_TRUE(contains(run.err, "[" + file + "] it is no whole JSON result")) << run.err;
    }
  }
  EXPECT_EQ(run_tracestep(words_of("compare a.json b.json"), here).status, 3);
  EXPECT_EQ(run_tracestep(words_of("compare a.json c.json"), here).status, 3);
  EXPECT_EQ(run_tracestep(words_of("compare a.json none.json"), here).status, 3);
  EXPECT_EQ(run_tracestep(words_of("compare a.json"), here).status, 2);
  EXPECT_EQ(run_tracestep(words_of("compare a.json a.json a.json"), here).status, 2);
}

TEST(CompareCommandTest, AResultOfAnEarlierVersionMatchesOneOfNow) {
  const TempFolder folder;
  const ProgramRun now = run_tracestep(
      words_of("bench --threads 1 --warmup 0 --steps 6 --d-model 32 --d-ff 64 --layers 1 --heads 2 "
               "--vocab 50 --batch 1 --context 16 --mode forward,step --roof 1 --format json "
               "--output now.json"),
      {.folder = folder.path()});
  ASSERT_EQ(now.status, 0) << now.err;
  const std::string before = (testing::source_folder() / "tests/cli/bench_1/result.json").string();
  const ProgramRun run = run_tracestep(words_of("compare " + before + " now.json --format json"),
                                       {.folder = folder.path()});
  ASSERT_EQ(run.status, 0) << run.err;
  const Json rows = Json::parse(run.out, "compare").at("tables").at("compare").at("rows");
  ASSERT_EQ(rows.size(), 2u);
  for (const Json& row : rows.items()) {
    EXPECT_FALSE(row.at("median_b_ms").is_null()) << row.dump();
  }
}

}  // namespace
}  // namespace tracestep
