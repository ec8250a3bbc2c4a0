// The part of weights in 16 bits that a rate moves is told before the first step, and holds.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cpu/cpu_device.h"
#include "ops/functions.h"
#include "spec/parse_words.h"
#include "support/tiny_training.h"
#include "train/small_updates.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TrainOptions options_at(const char* precision, double lr) {
  ops::register_all();
  TrainOptions out = testing::tiny_training();
  out.run.precision = parse_precision("test", precision);
  out.schedule.lr = lr;
  out.steps = 1;
  return out;
}

std::string said(const char* precision, double lr) {
  ::testing::internal::CaptureStderr();
  train(*make_cpu_device({.threads = 1}), options_at(precision, lr), testing::some_tokens(),
        nullptr, nullptr, {});
  return ::testing::internal::GetCapturedStderr();
}

TEST(SmallUpdatesTest, ARateThatMovesFewWeightsIsSaidBeforeTheFirstStep) {
  const std::string words =
      " % of the weights; the other updates are less than half the spacing of bf16 there";
  EXPECT_THAT(said("bf16-pure", 1e-5), HasSubstr("at a rate of 1e-05 a step moves about "));
  EXPECT_THAT(said("bf16-pure", 1e-5), HasSubstr(words));
  EXPECT_THAT(said("bf16-pure", 1e-2), Not(HasSubstr(words)));
  EXPECT_THAT(said("bf16", 1e-5), Not(HasSubstr(words)));
  EXPECT_THAT(said("fp32", 1e-5), Not(HasSubstr(words)));
}

TEST(SmallUpdatesTest, RoundedAtRandomWeightsMoveOnAverage) {
  TrainOptions options = options_at("bf16-pure", 1e-5);
  options.rounding = Rounding::kRandom;
  ::testing::internal::CaptureStderr();
  train(*make_cpu_device({.threads = 1}), options, testing::some_tokens(), nullptr, nullptr, {});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr(" % of the weights")));
}

// In the first step AdamW moves every weight that has a gradient by the rate.
TEST(SmallUpdatesTest, TheShareIsThatOfTheWeightsThatAStepMoves) {
  for (const char* precision : {"bf16-pure", "fp32"}) {
    for (const double lr : {1e-4, 1e-3}) {
      const TrainOptions options = options_at(precision, lr);
      const auto device = make_cpu_device({.threads = 1});
      Trainer trainer(*device, options, testing::some_tokens(), nullptr);
      initialize_parameters(trainer.store(), 3);
      initialize_states(trainer.store());
      const auto before = parameters_of(trainer.store());
      const double share = share_that_moves(trainer.store(), lr);
      trainer.step(0);
      std::int64_t moved = 0, all = 0;
      for (const auto& [name, old] : before) {
        const HostTensor was = widened(old), is = widened(trainer.store().get(name));
        for (std::size_t i = 0; i < was.as<double>().size(); ++i) {
          ++all;
          moved += was.as<double>()[i] != is.as<double>()[i] ? 1 : 0;
        }
      }
      EXPECT_NEAR(static_cast<double>(moved) / static_cast<double>(all), share, 0.05)
          << precision << " " << lr;
    }
  }
}

}  // namespace
}  // namespace tracestep
