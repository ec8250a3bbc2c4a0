// profile and precision as a person calls them, on a model that takes no time.
#include <algorithm>
#include <regex>
#include <set>

#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run_binary.h"
#include "lab/report/gzip.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

const char* const kSmallModel =
    " --d-model 32 --d-ff 64 --layers 2 --heads 2 --vocab 50 --context 8 --batch 2 --threads 1";

ProgramRun run(const std::string& arguments, int status = 0) {
  ProgramRun out = run_tracestep(words_of(arguments + kSmallModel));
  EXPECT_EQ(out.status, status) << arguments << "\n" << out.err;
  return out;
}

const char* const kFast = " --steps 2 --plain-steps 2 --warmup 1 --no-ceilings";

TEST(ProfileCommandTest, ABudgetThatCannotBeMetIsTheStatusOfItsRow) {
  const std::string options = std::string("profile --mode step --recompute ") + "budget=1KiB";
  const ProgramRun grid = run(options + ",none --format json" + kFast);
  EXPECT_NE(grid.err.find("the least peak is"), std::string::npos) << grid.err;
  const Json rows = Json::parse(grid.out, "profile").at("rows");
  std::vector<std::string> statuses;
  for (const Json& row : rows.items()) statuses.push_back(row.at("status").as_string());
  ASSERT_GE(statuses.size(), 2u);
  EXPECT_EQ(statuses.front(), "oom");
  EXPECT_EQ(statuses.back(), "ok");
  run(options + kFast, 2);
}

// In every form of a step, its kernels are those of its program and of the formula.
TEST(ProfileCommandTest, NoFormOfAStepIsTakenForAMistake) {
  for (const char* flags : {"--compile-passes epilogue", "--device reference",
                            "--parallel dp=2,shard=3 --executor arena",
                            "--parallel tp=2,sp --ops primitive --precision fp16",
                            "--parallel tp=2 --loss sum-of-logits --mode forward"}) {
    run(std::string("profile --format csv ") + flags + kFast);
  }
}

TEST(ProfileCommandTest, TablesOfBothModesComeWithTheirNames) {
  const ProgramRun out = run(std::string("profile --format json") + kFast);
  const Json result = Json::parse(out.out, "profile");
  EXPECT_EQ(result.at("schema").as_string(), "tracestep.profile/1");
  const Json& tables = result.at("tables");
  for (const char* name : {"passes", "clocks", "launch_check"}) {
    EXPECT_NE(tables.find(name), nullptr) << name;
  }
  std::size_t matrices = 0;
  for (const auto& [name, table] : tables.members()) {
    if (!name.starts_with("matrix@")) continue;
    ++matrices;
    double sum = 0;
    for (const Json& row : table.at("rows").items()) {
      const Json& share = row.at("share_percent");
      if (row.at("component").as_string() != "total") {
        if (!share.is_null()) sum += share.as_double();
      } else if (!share.is_null()) {  // else kernels took longer than the span: shares are of them
        EXPECT_NEAR(share.as_double(), 100.0, 1e-9);
      }
    }
    EXPECT_NEAR(sum, 100.0, 0.1) << name;
  }
  EXPECT_EQ(matrices, 2u);  // inference and step
}

TEST(ProfileCommandTest, TheScreenOfOneStepListsWhereItsTimeGoesAndSaysNoShareTwice) {
  const std::string shown = run(std::string("profile --mode step") + kFast).out;
  const std::string answer = shown.substr(0, shown.find("\n\n"));
  const std::regex share("[0-9.]+ %");
  std::set<std::string> said;
  for (std::sregex_iterator it(answer.begin(), answer.end(), share), end; it != end; ++it) {
    EXPECT_TRUE(said.insert(it->str()).second) << answer;
  }
  EXPECT_EQ(said.size(), 2u) << answer;
  const std::size_t rows = shown.find('\n', shown.find("\n----") + 1) + 1;
  EXPECT_EQ(std::count(shown.begin() + static_cast<std::ptrdiff_t>(rows),
                       shown.begin() + static_cast<std::ptrdiff_t>(shown.find("\n\n", rows)), '\n'),
            7)
      << shown;
  const Json top =
      Json::parse(run(std::string("profile --mode step --format json") + kFast).out, "profile")
          .at("tables")
          .at("top");
  ASSERT_EQ(top.at("rows").size(), 8u);
  double before = 1e300, sum = 0;
  std::set<std::string> ops;
  for (const Json& row : top.at("rows").items()) {
    EXPECT_LE(row.at("ms").as_double(), before);
    before = row.at("ms").as_double();
    sum += row.at("share_percent").as_double();
    EXPECT_GE(row.at("launches").as_double(), 1);
    ops.insert(row.at("op").as_string());
  }
  EXPECT_GT(ops.size(), 1u);
  EXPECT_LE(sum, 100.0);
}

TEST(ProfileCommandTest, ComponentsNarrowTheRowsAndKeepTheTotal) {
  const ProgramRun out =
      run(std::string("profile --mode step --components attention --format json") + kFast);
  const Json result = Json::parse(out.out, "profile");
  bool has_rest = false;
  for (const Json& row : result.at("tables").at("matrix").at("rows").items()) {
    const std::string& name = row.at("component").as_string();
    has_rest = has_rest || name == "components not asked for";
    if (!row.at("phase").is_null()) {
      EXPECT_TRUE(name.starts_with("attn")) << name;
    }
  }
  EXPECT_TRUE(has_rest);
  const ProgramRun wrong = run(std::string("profile --components attn.sofmax") + kFast, 2);
  EXPECT_NE(wrong.err.find("attn.softmax"), std::string::npos) << wrong.err;
}

TEST(ProfileCommandTest, TracesAreOneFilePerCellCompressedByName) {
  const TempFolder folder;
  run("profile --mode step --trace " + (folder.path() / "one.json.gz").string() + kFast);
  const Json one = Json::parse(gunzip(content_of(folder.path() / "one.json.gz")), "one.json.gz");
  EXPECT_GT(one.at("traceEvents").items().size(), 10u);
  run("profile --trace " + (folder.path() / "two.json").string() + kFast);
  for (const char* mode : {"inference", "step"}) {
    const std::string name =
        "two.custom-d_model-32-d_ff-64-layers-2-heads-2-context-8-batch-2-vocab-50-" +
        std::string(mode) + "-fp32-fused.json";
    EXPECT_TRUE(Json::parse(content_of(folder.path() / name), name).is_object());
  }
  run("profile --trace /no/such/folder/t.json" + std::string(kFast), 5);
}

TEST(PrecisionCommandTest, PartsAreTheTablesAskedFor) {
  const Json result = Json::parse(
      run("precision --format json --part formats,accumulation --seed 1").out, "precision");
  EXPECT_EQ(result.at("schema").as_string(), "tracestep.precision/1");
  EXPECT_EQ(result.at("tables").members().size(), 2u);
  for (const Json& row : result.at("tables").at("accumulation").at("rows").items()) {
    EXPECT_TRUE(row.at("same_bits").as_bool());
  }
}

TEST(PrecisionCommandTest, StepsHaveTimePeakAndErrorInOneRow) {
  const Json result = Json::parse(
      run("precision --format json --part steps --steps 2 --warmup 1").out, "precision");
  const auto& rows = result.at("rows").items();
  ASSERT_EQ(rows.size(), 3u);  // fp32, bf16, fp16
  for (const Json& row : rows) {
    EXPECT_GT(row.at("median_ms").as_double(), 0);
    EXPECT_GT(row.at("peak_bytes").as_int(), 0);
    EXPECT_GT(row.at("gradient_error").as_double(), 0);
  }
  EXPECT_LT(rows[0].at("logits_error").as_double(), rows[1].at("logits_error").as_double());
  run("precision --part steps --precision fp33", 2);
  // Errors are those of forward and backward, whatever a step adds up.
  run("precision --part steps --precision fp32 --mode step --accumulate 2 --steps 1 --warmup 0");
}

}  // namespace
}  // namespace tracestep
