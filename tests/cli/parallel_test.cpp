// --parallel on the commands that have it, and comm.
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run_binary.h"

namespace tracestep {
namespace {

constexpr const char* kModel =
    " --d-model 32 --d-ff 48 --layers 2 --heads 2 --vocab 64 --context 16 --batch 4 --threads 1";

Json rows_of(const std::string& arguments) {
  const ProgramRun run = run_tracestep(words_of(arguments + " --format json"));
  EXPECT_EQ(run.status, 0) << run.err;
  return Json::parse(run.out, arguments).at("rows");
}

TEST(ParallelCommandTest, ARowSaysHowRanksSharedTheStep) {
  const std::string bench = std::string("bench --mode step --warmup 1 --steps 2") + kModel;
  const Json alone = rows_of(bench).items()[0];
  for (const std::string choice : {"dp=2,shard=2", "tp=2,sp"}) {
    const Json shared = rows_of(bench + " --parallel " + choice).items()[0];
    EXPECT_EQ(shared.at("parallel").as_string(), choice);
    EXPECT_EQ(shared.at("flops").as_double(), alone.at("flops").as_double()) << "of all ranks";
    EXPECT_EQ(shared.at("parameters").as_double(), alone.at("parameters").as_double());
    EXPECT_EQ(shared.at("peak_bytes").as_int(), shared.at("predicted_peak_bytes").as_int());
    EXPECT_LT(shared.at("peak_bytes").as_int(), alone.at("peak_bytes").as_int()) << "of one rank";
  }
}

TEST(ParallelCommandTest, AnyNumberOfRanksIsPredicted) {
  const std::string memory =
      "memory --predict --mode step --size small --context 64 --batch 1024 --parallel dp=";
  const auto peak = [&](const std::string& more) {
    return rows_of(memory + more).items()[0].at("predicted_peak_bytes").as_int();
  };
  EXPECT_LT(peak("1024,shard=3"), peak("1024,shard=1"));
  EXPECT_LT(peak("512,tp=2"), peak("512"));
}

TEST(ParallelCommandTest, WhereRanksCannotRunTheyAreRefused) {
  for (const char* arguments :
       {"eval --init w --text t --parallel dp=2", "fit --size tiny --parallel dp=2",
        "bench --size tiny --batch 3 --parallel dp=2", "bench --size tiny --parallel tp=3"}) {
    const ProgramRun run = run_tracestep(words_of(arguments));
    EXPECT_EQ(run.status, 2) << arguments;
    EXPECT_NE(run.err.find("[--parallel]"), std::string::npos) << run.err;
  }
}

// Weights in parts are vectors, and their products are still those of weights.
TEST(ParallelCommandTest, AProfileFindsTheProductsOfWeightsInParts) {
  const ProgramRun run = run_tracestep(
      words_of(std::string("profile --mode step --warmup 0 --steps 1 --plain-steps 1 --no-ceilings "
                           "--parallel dp=2,shard=3 --format json") +
               kModel));
  ASSERT_EQ(run.status, 0) << run.err;
  const Json result = Json::parse(run.out, "profile");
  std::int64_t weights = 0;
  for (const Json& row : result.at("tables").at("launch_check").at("rows").items()) {
    EXPECT_EQ(row.at("verdict").as_string(), "ok") << row.dump();
    if (row.at("what").as_string().find("weight products") == std::string::npos) continue;
    weights += row.at("in_program").as_int();
  }
  EXPECT_GT(weights, 0);
}

// The count of steps is raised behind the updates that read it, which wait for their sums.
TEST(ParallelCommandTest, TheOrderOfSumsKeepsEveryUpdate) {
  const ProgramRun shown = run_tracestep(
      words_of("show --d-model 32 --d-ff 64 --layers 2 --heads 2 --vocab 64 --context 16 --batch 4 "
               "--mode step --parallel dp=2 --moments bf16 --executor compiled"));
  EXPECT_EQ(shown.status, 0) << shown.err;
}

TEST(CommCommandTest, EveryCollectiveSizeAndNumberOfRanksIsARow) {
  const Json rows = rows_of("comm --ranks 2,3 --bytes 4KiB,8KiB --calls 2 --warmup 1");
  EXPECT_EQ(rows.items().size(), 3u * 2u * 2u);
  for (const Json& row : rows.items()) EXPECT_GT(row.at("bus_gb_s").as_double(), 0.0);
  EXPECT_EQ(run_tracestep(words_of("comm --bytes 6B")).status, 2);
  EXPECT_EQ(run_tracestep(words_of("comm --bytes 4KiB --ranks 1")).status, 2) << "no collective";
}

}  // namespace
}  // namespace tracestep
