// A step that is not finite, on every back end: it changes nothing, and it is found where it began.
#include "train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/functions.h"
#include "passes/loss_scaling.h"
#include "passes/pipeline.h"
#include "support/backends.h"
#include "support/host_values.h"
#include "support/tiny_training.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using testing::some_tokens;
using ::testing::StartsWith;
using testing::to_doubles;
using Tensors = std::map<std::string, HostTensor>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Case {
  std::string backend, precision;
  Granularity ops;
  std::int64_t accumulate;
};

TrainOptions options_of(const Case& c) {
  TrainOptions out = testing::tiny_training();
  out.run.precision = parse_precision("test", c.precision);
  out.run.accumulate = c.accumulate;
  out.run.ops = c.ops;
  out.schedule.lr = 1e-2;
  out.run.optimizer.weight_decay = 0.1;
  return out;
}

void set_all(Store& store, const std::string& name, double factor) {
  HostTensor value = store.get(name);
  std::vector<double> scaled = to_doubles(value);
  for (double& x : scaled) x *= factor;
  store.set(name, testing::from_doubles(value.dtype, value.shape, scaled));
}

void poison(Store& store, const std::string& name) {
  HostTensor value = store.get(name);
  std::vector<double> values = to_doubles(value);
  values[5] = kInfinity;
  store.set(name, testing::from_doubles(value.dtype, value.shape, values));
}

// The loss stays finite; what flows back from the large last matrix through the norms of the small
// embedding does not: each of them multiplies it by up to 316, as epsilon is 1e-5.
void make_gradients_overflow(Store& store, const Case& c) {
  set_all(store, "token_embeddings.weight", 1e-4);
  set_all(store, "lm_head.weight", c.precision == "fp16" ? 1e4 : 1e20);
}

// Everything that a step may change, but for the gradients that each step makes anew.
Tensors contents(const Store& store) {
  Tensors out = parameters_of(store);
  out.merge(states_of(store, "adamw."));
  out.merge(states_of(store, kLossScale));
  return out;
}

void expect_equal(const Tensors& before, const Tensors& after) {
  for (const auto& [name, value] : before) EXPECT_EQ(value.bytes, after.at(name).bytes) << name;
}

class TrainerTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    ops::register_all();
    device_ = testing::backend_named(GetParam().backend).make({.threads = 1});
    trainer_.emplace(*device_, options_of(GetParam()), some_tokens(), nullptr);
    initialize_parameters(trainer_->store(), 3);
    for (std::int64_t i = 0; i < 2; ++i) EXPECT_FALSE(trainer_->step(i).not_finite);
  }

  Store& store() { return trainer_->store(); }
  static bool is_scaled() { return GetParam().precision == "fp16"; }
  void set_scale(float scale) {
    store().set(kLossScale, HostTensor::of<float>(DType::kF32, {}, std::span(&scale, 1)));
  }

  std::unique_ptr<Device> device_;
  std::optional<Trainer> trainer_;
};

TEST_P(TrainerTest, AWeightThatIsNotFiniteStopsTheStepBeforeAnythingChanges) {
  poison(store(), "layers.1.ffn.w2.weight");
  const Tensors before = contents(store());
  const TrainStep step = trainer_->step(2);
  EXPECT_TRUE(step.not_finite);
  EXPECT_FALSE(std::isfinite(step.loss));
  expect_equal(before, contents(store()));
  const auto cause = trainer_->find_cause(2);
  ASSERT_TRUE(cause.has_value());
  EXPECT_EQ(cause->str(), "layers.1.ffn.w2.weight holds 0 NaN and 1 infinite of 512 values");
  expect_equal(before, contents(store()));
}

TEST_P(TrainerTest, GradientsThatOverflowStopTheStepBeforeAnythingChanges) {
  if (is_scaled()) set_scale(1.0F);
  make_gradients_overflow(store(), GetParam());
  const Tensors before = contents(store());
  const TrainStep step = trainer_->step(2);
  EXPECT_TRUE(step.not_finite);
  // The fused loss of a GPU holds logits up to 1e9; beyond, it is what stops the step.
  const bool has_loss =
      is_scaled() || GetParam().backend != "cuda" || GetParam().ops == Granularity::kPrimitive;
  EXPECT_EQ(std::isfinite(step.loss), has_loss) << step.loss;
  expect_equal(before, contents(store()));
  trainer_->find_cause(2);
  expect_equal(before, contents(store()));
}

TEST_P(TrainerTest, AStepAfterOneThatWasUndoneIsTheStepAsIfThatHadNotBeen) {
  const Tensors good = contents(store());
  poison(store(), "layers.0.attn.q_proj.weight");
  EXPECT_TRUE(trainer_->step(2).not_finite);
  trainer_->find_cause(2);
  for (const auto& [name, value] : good) store().set(name, value);
  EXPECT_FALSE(trainer_->step(2).not_finite);
  const Tensors after = contents(store());
  for (const auto& [name, value] : good) store().set(name, value);
  EXPECT_FALSE(trainer_->step(2).not_finite);
  expect_equal(after, contents(store()));
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const std::string& backend : testing::backend_names()) {
    for (const char* precision : {"fp32", "bf16", "fp16"}) {
      for (Granularity ops : {Granularity::kPrimitive, Granularity::kFused}) {
        for (std::int64_t accumulate : {1, 2}) out.push_back({backend, precision, ops, accumulate});
      }
    }
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Steps, TrainerTest, ::testing::ValuesIn(cases()), [](const auto& p) {
  return fmt::format("{}_{}_{}_{}", p.param.backend, p.param.precision, name_of(p.param.ops),
                     p.param.accumulate);
});

// Micro-batches read narrow copies of the weights, which the update writes.
TEST(MicroBatchTest, ShadowsAndJoinedUpdatesGiveTheSameWeights) {
  ops::register_all();
  for (const std::string& backend : testing::backend_names()) {
    for (const char* precision : {"bf16", "fp16"}) {
      const auto weights_of = [&](std::set<std::string> passes) {
        TrainOptions options = options_of({backend, precision, Granularity::kFused, 2});
        options.run.executor = ExecutorKind::kCompiled;
        options.run.compile_passes = std::move(passes);
        const auto device = testing::backend_named(backend).make({.threads = 1});
        Trainer trainer(*device, options, some_tokens(), nullptr);
        initialize_parameters(trainer.store(), 3);
        for (std::int64_t i = 0; i < 3; ++i) EXPECT_FALSE(trainer.step(i).not_finite);
        const bool has_shadow = trainer.store().find("shadow.lm_head.weight") != nullptr;
        EXPECT_EQ(has_shadow, options.run.compile_passes->contains("shadow"));
        return contents(trainer.store());
      };
      expect_equal(weights_of({}), weights_of({"shadow", "join"}));
    }
  }
}

class ScaledTrainerTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ops::register_all(); }
};
INSTANTIATE_TEST_SUITE_P(Devices, ScaledTrainerTest, ::testing::ValuesIn(testing::backend_names()));

TEST_P(ScaledTrainerTest, OverflowsAreSkippedDownToTheFloorAndEndTheRunThere) {
  for (std::int64_t accumulate : {1, 2}) {
    const Case c{GetParam(), "fp16", Granularity::kFused, accumulate};
    const auto device = testing::backend_named(GetParam()).make({.threads = 1});
    Trainer trainer(*device, options_of(c), some_tokens(), nullptr);
    initialize_parameters(trainer.store(), 3);
    make_gradients_overflow(trainer.store(), c);
    const Tensors weights = parameters_of(trainer.store());
    double scale = kInitialLossScale;
    std::int64_t step = 0;
    for (; scale > kLossScaleFloor; ++step, scale /= 2) {
      const TrainStep record = trainer.step(step);
      EXPECT_FALSE(record.not_finite) << "skipped";
      EXPECT_EQ(record.loss_scale, scale);
      EXPECT_EQ(record.skipped_steps, step + 1);
    }
    EXPECT_EQ(step, 16);
    const TrainStep last = trainer.step(step);
    EXPECT_TRUE(last.not_finite);
    EXPECT_EQ(last.loss_scale, kLossScaleFloor);
    EXPECT_EQ(last.skipped_steps, 16) << "it is no skipped step";
    expect_equal(weights, parameters_of(trainer.store()));
    const auto cause = trainer.find_cause(step);
    ASSERT_TRUE(cause.has_value());
    EXPECT_EQ(cause->phase, Phase::kBackward) << cause->str();
    EXPECT_EQ(cause->dtype, DType::kF16) << cause->str();
  }
}

// A loss that does not depend on the scale is not tried with a smaller one.
TEST_P(ScaledTrainerTest, ALossThatIsNotFiniteEndsTheRunAtOnce) {
  const Case c{GetParam(), "fp16", Granularity::kFused, 1};
  const auto device = testing::backend_named(GetParam()).make({.threads = 1});
  Trainer trainer(*device, options_of(c), some_tokens(), nullptr);
  initialize_parameters(trainer.store(), 3);
  set_all(trainer.store(), "lm_head.weight", 1e6);
  const TrainStep step = trainer.step(0);
  EXPECT_TRUE(step.not_finite);
  EXPECT_EQ(step.loss_scale, kInitialLossScale);
  const auto cause = trainer.find_cause(0);
  ASSERT_TRUE(cause.has_value());
  EXPECT_THAT(cause->str(), StartsWith("the result of cast at lm_head (forward) holds 0 NaN and "));
}

}  // namespace
}  // namespace tracestep
