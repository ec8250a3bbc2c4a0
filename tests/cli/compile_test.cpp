// compile: its parts, its grid and its ladder. On the null device, and once on the CPU.
#include <fstream>

#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run_binary.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

constexpr const char* kSmallModel =
    " --d-model 16 --d-ff 24 --layers 1 --heads 2 --vocab 20 --context 8 --warmup 0 --steps 2";

Json json_of(const std::string& arguments) {
  const ProgramRun run =
      run_tracestep(words_of("compile " + arguments + kSmallModel + " --format json"));
  EXPECT_EQ(run.status, 0) << run.err;
  return Json::parse(run.out, arguments);
}

TEST(CompileCommandTest, AllPartsOnTheCpu) {
  const Json result = json_of("--width 8 --attention-context 16 --error-layers 1 --error-tokens 4");
  EXPECT_EQ(result.at("schema").as_string(), "tracestep.compile/1");
  const Json& tables = result.at("tables");
  EXPECT_EQ(tables.at("ways").at("rows").size(), 12u);  // 3 modes, 2 granularities, 2 executors
  EXPECT_EQ(tables.at("attention_ways").at("rows").size(), 4u);
  EXPECT_EQ(tables.at("saved_ways").at("rows").size(), 20u);
  EXPECT_GE(tables.at("ladder").at("rows").size(), 14u);
  for (const Json& row : tables.at("ways").at("rows").items()) {
    EXPECT_GT(row.at("first_start_ms").as_double(), 0);
    EXPECT_GT(row.at("second_start_ms").as_double(), 0);
  }
}

TEST(CompileCommandTest, RungsAreFreeInOrderAndChecked) {
  const Json result = json_of("--device null --part ladder --rungs graph,flash");
  const auto& rows = result.at("rows").items();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].at("rung").as_string(), "graph");
  EXPECT_EQ(rows[1].at("executor").as_string(), "compiled");
  EXPECT_EQ(rows[1].at("attention").as_string(), "naive");
  EXPECT_EQ(rows[2].at("attention").as_string(), "flash");
  const ProgramRun wrong = run_tracestep(words_of("compile --rungs falsh"));
  EXPECT_EQ(wrong.status, 2);
  EXPECT_TRUE(contains(wrong.err, "did you mean flash?"));
}

TEST(CompileCommandTest, EachModelAndContextHasALadder) {
  const ProgramRun run = run_tracestep(
      words_of("compile --device null --part ladder --size tiny,small --context 8,16 --rungs norm "
               "--warmup 0 --steps 1 --format json"));
  ASSERT_EQ(run.status, 0) << run.err;
  const Json result = Json::parse(run.out, "ladders");
  for (const char* name : {"ladder@tiny 8 step", "ladder@tiny 16 step", "ladder@small 16 step"}) {
    EXPECT_EQ(result.at("tables").at(name).at("rows").size(), 2u) << name;
  }
}

TEST(CompileCommandTest, EachFormOfAStepHasALadderOfItsOwnName) {
  const Json result = json_of(
      "--device null --part ladder --rungs norm --moments fp32,bf16 --recompute none,blocks");
  EXPECT_EQ(result.at("tables").size(), 4u);
}

TEST(CompileCommandTest, ABudgetThatOneRungCannotMeetIsItsStatus) {
  const ProgramRun run = run_tracestep(
      words_of(std::string("compile --device null --part steps,ladder --mode step --rungs norm "
                           "--recompute budget=1KiB --format json") +
               kSmallModel));
  ASSERT_EQ(run.status, 0) << run.err;
  const Json tables = Json::parse(run.out, "compile").at("tables");
  for (const char* table : {"ways", "ladder"}) {
    ASSERT_GT(tables.at(table).at("rows").size(), 1u);
    for (const Json& row : tables.at(table).at("rows").items()) {
      EXPECT_EQ(row.at("status").as_string(), "oom") << table;
      EXPECT_TRUE(contains(row.at("detail").as_string(), "least peak")) << table;
    }
  }
}

TEST(CompileCommandTest, OneStepWithoutMemoryHasTheStatusOfThat) {
  const ProgramRun run = run_tracestep(
      words_of(std::string("compile --part steps --mode step --ops fused --executor eager "
                           "--memory-limit 8KiB") +
               kSmallModel));
  EXPECT_EQ(run.status, 4);
  EXPECT_TRUE(contains(run.err, "out of memory")) << run.err;
}

TEST(CompileCommandTest, AttentionByItselfHasEachWayOnce) {
  const TempFolder folder;
  const std::string path = (folder.path() / "a.json").string();
  const Json result = json_of(
      "--part attention --width 8 --attention-context 8 --ops fused --executor eager "
      "--compile-passes none,all --recompute none,blocks --moments fp32,bf16");
  EXPECT_EQ(result.at("rows").size(), 2u);
  std::ofstream(path) << result.dump();
  const ProgramRun compared = run_tracestep({"compare", path, path});
  EXPECT_EQ(compared.status, 0) << compared.err;
}

TEST(CompileCommandTest, OnACpuAGraphIsSaidToBeItsArenaAndErrorsToBeUnmeasured) {
  const ProgramRun run = run_tracestep(
      words_of("compile --part ladder --rungs graph --error-layers 0" + std::string(kSmallModel)));
  EXPECT_TRUE(contains(run.out, "no graph was captured here")) << run.out;
  EXPECT_TRUE(contains(run.out, "were not measured")) << run.out;
}

TEST(CompileCommandTest, TwoResultsAreCompared) {
  const TempFolder folder;
  const std::string path = (folder.path() / "a.json").string();
  ASSERT_EQ(run_tracestep(words_of("compile --device null --part steps,ladder --rungs norm,graph" +
                                   std::string(kSmallModel) + " --format json --output " + path))
                .status,
            0);
  const ProgramRun run = run_tracestep({"compare", path, path});
  EXPECT_EQ(run.status, 0) << run.err;
}

}  // namespace
}  // namespace tracestep
