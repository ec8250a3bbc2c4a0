// Hints of runs that are out of memory are about the memory that was full.
#include "cli/hints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/units.h"
#include "exec/executor.h"
#include "ops/functions.h"
#include "spec/parse_words.h"
#include "spec/step_program.h"

namespace tracestep::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

RunSpec offloaded() {
  ops::register_all();
  RunSpec out{.model = preset("tiny"), .shape = {.batch = 4, .context = 128}};
  out.place.device = "cuda";
  out.place.memory_limit_bytes = std::int64_t{64} << 20;
  out.offload = Offload::kOptimizer;
  return out;
}

TEST(OomHintTest, WhereTheHostIsFullItSaysHowMuchOfItIsNeeded) {
  RunSpec run = offloaded();
  const std::string hint = oom_hint(run, {.is_on_host = true});
  EXPECT_THAT(hint, HasSubstr(format_bytes(2 * 4 * parameter_count(forward_program(run)))));
  EXPECT_THAT(hint, HasSubstr("--moments bf16"));
  EXPECT_THAT(hint, Not(HasSubstr("--offload optimizer")));  // what it says to do without
  run.optimizer.moments = Moments::kBF16;
  EXPECT_THAT(oom_hint(run, {.is_on_host = true}), Not(HasSubstr("--moments bf16 less")));
}

TEST(OomHintTest, WhereTheDeviceIsFullItSaysWhatFitsTheLimit) {
  EXPECT_THAT(oom_hint(offloaded(), {}), HasSubstr("would fit, with a peak"));
}

// Where no change of the whole batch keeps the task: half of what the leanest one holds.
TEST(OomHintTest, ATrainingStepIsDividedWhereNothingElseKeepsItsTask) {
  ops::register_all();
  RunSpec run{.model = {.vocab = 50, .d_model = 32, .d_ff = 64, .layers = 3, .heads = 2},
              .shape = {.batch = 32, .context = 256}};
  run.place.threads = 2;
  RunSpec least = run;
  least.attention = AttentionForm::kFlash;
  least.recompute = Recomputation::blocks();
  least.updates = UpdateTime::kEarly;
  least.loss_chunks = 0;
  const DeviceTraits traits{.threads = 2};
  run.place.memory_limit_bytes =
      predicted_peak_bytes(run.executor, step_program(least, traits), traits) * 6 / 10;
  EXPECT_THAT(oom_hint(run, {.is_on_host = true}),
              AllOf(HasSubstr("micro-batches would fit"),
                    HasSubstr("tracestep train --text FILE --accumulate")));
  run.mode = Mode::kForwardBackward;
  EXPECT_THAT(oom_hint(run, {.is_on_host = true}), Not(HasSubstr("--accumulate")));
}

// The command asks for the same bytes, and the step's own budget does not end the search.
TEST(OomHintTest, WhatItNamesIsTheSameStep) {
  ops::register_all();
  RunSpec run{.model = {.vocab = 50, .d_model = 32, .d_ff = 64, .layers = 2, .heads = 2},
              .shape = {.batch = 2, .context = 64}};
  run.place.threads = 3;
  run.place.memory_limit_bytes = 800 << 10;
  EXPECT_THAT(oom_hint(run, {.is_on_host = true}), HasSubstr(" --threads 3 --memory-limit"));
  run.recompute = parse_recomputation("test", "budget=900KiB");
  EXPECT_THAT(oom_hint(run, {.is_on_host = true}), HasSubstr("would fit, with a peak"));
}

}  // namespace
}  // namespace tracestep::cli
