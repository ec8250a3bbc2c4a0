// Predicted steps of ranks with a GPU each: what their collectives take, and what of it a step
// waits for.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "analysis/buffer_plan.h"
#include "analysis/cost.h"
#include "analysis/lanes.h"
#include "ir/parse.h"
#include "lab/predict/predict.h"
#include "lab/predict/published_times.h"
#include "ops/functions.h"
#include "spec/parse_words.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

class PredictRanksTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
  StepTime time(const std::string& parallel, const Link& link) const {
    RunSpec run{.model = preset("small"), .shape = {.batch = 4, .context = 128}};
    run.parallel = parse_parallel("--parallel", parallel);
    return predict_run(run, gpu_, {*model_, {}, link}).time;
  }
  std::int64_t received(const std::string& parallel) const {
    RunSpec run{.model = preset("small"), .shape = {.batch = 4, .context = 128}};
    run.parallel = parse_parallel("--parallel", parallel);
    return received_bytes(step_program(run, gpu_), 0);
  }
  static double others_ms(const StepTime& time) { return time.kernels_ms - time.collectives_ms; }

  DeviceTraits gpu_{.kind = DeviceKind::kCuda};
  std::unique_ptr<TimeModel> model_ = make_time_model(DevicePeaks{"a device", 10, 100, 1000});
};

TEST_F(PredictRanksTest, CollectivesTakeTheBytesOfTheLink) {
  for (const char* parallel : {"dp=2", "dp=2,shard=1", "dp=2,shard=2", "dp=2,shard=3", "tp=2"}) {
    SCOPED_TRACE(parallel);
    const auto bytes = static_cast<double>(received(parallel));
    EXPECT_GT(bytes, 0);
    const StepTime slow = time(parallel, {.gb_s = 50, .call_us = 0}),
                   fast = time(parallel, {.gb_s = 500, .call_us = 0});
    EXPECT_NEAR(slow.collectives_ms, bytes / 50e6, 1e-9 * bytes);
    EXPECT_NEAR(fast.collectives_ms, bytes / 500e6, 1e-9 * bytes);
    EXPECT_NEAR(others_ms(slow), others_ms(fast), 1e-9 * slow.ms);
    EXPECT_LE(fast.exposed_ms, slow.exposed_ms);
    EXPECT_LE(slow.exposed_ms, slow.collectives_ms * (1 + 1e-9));
    EXPECT_NEAR(slow.ms, others_ms(slow) + slow.exposed_ms, 1e-9 * slow.ms);
    EXPECT_NEAR(slow.beside_ms, slow.collectives_ms - slow.exposed_ms, 1e-9 * slow.ms);
    EXPECT_LE(slow.low_ms, slow.ms);
  }
}

TEST_F(PredictRanksTest, OnlyOverlapHidesCollectives) {
  const Link link{.gb_s = 100, .call_us = 10};
  const StepTime beside = time("dp=2", link), in_turn = time("dp=2,overlap=off", link),
                 divided = time("tp=2", link), in_the_open = time("tp=2,overlap=off", link);
  EXPECT_LT(beside.exposed_ms, 0.5 * beside.collectives_ms);
  EXPECT_NEAR(in_turn.exposed_ms, in_turn.collectives_ms, 1e-9 * in_turn.ms);
  EXPECT_NEAR(in_the_open.exposed_ms, in_the_open.collectives_ms, 1e-9 * in_the_open.ms);
  EXPECT_LT(divided.exposed_ms, 0.9 * divided.collectives_ms);  // backward hides, forward does not
  EXPECT_LT(divided.ms, in_the_open.ms);
  EXPECT_LT(beside.ms, in_turn.ms);
}

// A batch of sums is one call.
TEST_F(PredictRanksTest, CallsOfABatchCostOnce) {
  const auto calls = [&](const std::string& parallel) {
    const double all = time(parallel, {.gb_s = 100, .call_us = 1000}).collectives_ms,
                 bytes = time(parallel, {.gb_s = 100, .call_us = 0}).collectives_ms;
    return std::lround(all - bytes);
  };
  EXPECT_EQ(calls("dp=2,bucket=all"), 1);
  EXPECT_GT(calls("dp=2,bucket=tensor"), 100);
}

// The second sum is ready late; what reads the first one waits for it.
TEST_F(PredictRanksTest, ANodeWaitsForTheCollectiveThatItReads) {
  const Program program = parse_program(R"(program "p" {
  input %x : f32[8]
  %0 : f32[8] = exp(%x) @ a backward
  %1 : f32[8] = all_reduce(%0) {lane=1, ranks=2} @ a communication
  %2 : f32[8] = silu(%0) @ b backward
  %3 : f32[8] = add(%1, %2) @ c backward
  %4 : f32[8] = all_reduce(%3) {lane=1, ranks=2} @ c communication
  output "kept" = %0
  output "y" = %4
}
)");
  const std::vector<double> us{10, 7, 3, 1, 5};
  const Timeline found = timeline_of(program, turns_of(program, plan_buffers(program)), us);
  EXPECT_EQ(found.span, 10 + 7 + 1 + 5);
  EXPECT_EQ(found.collectives, 7 + 5);
  EXPECT_EQ(found.exposed, 7 - 3 + 5);
}

}  // namespace
}  // namespace tracestep
