// Steps with every option at random, for every kind of device: each program holds what the verifier
// asks of it behind every pass, and has a plan.
#include <gtest/gtest.h>

#include "analysis/plan.h"
#include "base/error.h"
#include "ops/functions.h"
#include "spec/step_program.h"
#include "support/random_step.h"

namespace tracestep::testing {
namespace {

constexpr DeviceKind kKinds[] = {DeviceKind::kCpu, DeviceKind::kCuda, DeviceKind::kReference};

// Members that no option of every command sets: training and micro-batches do.
void draw_training_options(Dice& dice, RunSpec& run) {
  run.gradients = dice.pick({GradientKind::kTransient, GradientKind::kTransient,
                             GradientKind::kPersistent, GradientKind::kAccumulate});
  run.optimizer.clip = dice.pick({0.0, 0.0, 1.0});
  run.optimizer.guard_finite = dice.chance(0.3);
}

TEST(RandomStepsTest, TheProgramOfEveryOptionPassesTheVerifierBehindEveryPass) {
  constexpr std::uint64_t kSteps = 200;
  ops::register_all();
  int made = 0;
  for (std::uint64_t seed = 1; seed <= kSteps; ++seed) {
    Dice dice(seed);
    RunSpec run = random_step(dice, random_small_model(dice));
    draw_training_options(dice, run);
    run.verify = true;
    const DeviceTraits traits{.kind = dice.pick(kKinds)};
    try {
      plan_step(step_program(run, traits), traits);
      ++made;
    } catch (const Error& error) {  // options that exclude each other
      EXPECT_EQ(error.code(), ErrorCode::kUsage) << text_of_step(run) << "\n" << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "seed " << seed << " on " << name_of(traits.kind) << ": "
                    << text_of_step(run) << "\n"
                    << error.what();
    }
  }
  EXPECT_GT(made, static_cast<int>(kSteps) / 3);
}

// In chunks, a view of what comes back from the host's memory stands in front of what reads it.
TEST(RandomStepsTest, AViewOfAnOffloadedValueIsBehindItsReturn) {
  ops::register_all();
  RunSpec run;
  run.model = {.vocab = 31, .d_model = 16, .d_ff = 24, .layers = 2, .heads = 2};
  run.shape = {.batch = 2, .context = 8};
  run.mode = Mode::kStep;
  run.precision.parameters = DType::kBF16;
  run.ops = Granularity::kPrimitive;
  run.ffn_chunks = 3;
  run.offload = Offload::kActivations;
  run.verify = true;
  const DeviceTraits traits{.kind = DeviceKind::kCuda};
  EXPECT_GT(plan_step(step_program(run, traits), traits).peak_bytes(), 0);
}

}  // namespace
}  // namespace tracestep::testing
