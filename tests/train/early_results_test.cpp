// Training on a device that works on while the host goes on: the loss and the norm are read before
// the weights are updated, and the next batch is copied beside the update.
#include "exec/early_results.h"

#include <gtest/gtest.h>

#include <limits>

#include "ops/functions.h"
#include "support/backends.h"
#include "support/deferring_device.h"
#include "support/tiny_training.h"
#include "train/loop.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

using testing::DeferringDevice;
using testing::some_tokens;

struct Case {
  ExecutorKind executor;
  std::int64_t accumulate;
};

TrainOptions options_of(const Case& c) {
  TrainOptions out = testing::tiny_training();
  out.run.executor = c.executor;
  out.run.accumulate = c.accumulate;
  out.schedule = {ScheduleKind::kCosine, 1e-2, 1e-3, 2, 12};
  out.steps = 6;
  return out;
}

std::unique_ptr<Device> cpu() {
  return testing::backend_named("cpu").make({.threads = 1});
}

class EarlyResultsTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { ops::register_all(); }
};
INSTANTIATE_TEST_SUITE_P(
    Executors, EarlyResultsTest,
    ::testing::Values(Case{ExecutorKind::kEager, 1}, Case{ExecutorKind::kEager, 3},
                      Case{ExecutorKind::kArena, 1}, Case{ExecutorKind::kCompiled, 1},
                      Case{ExecutorKind::kCompiled, 3}),
    [](const auto& p) {
      return fmt::format("{}_{}", name_of(p.param.executor), p.param.accumulate);
    });

TEST_P(EarlyResultsTest, AStepReturnsWhileItsWeightsAreUpdated) {
  DeferringDevice device(cpu());
  Trainer trainer(device, options_of(GetParam()), some_tokens(), nullptr);
  initialize_parameters(trainer.store(), 3);
  for (std::int64_t i = 0; i < 4; ++i) {
    trainer.step(i);
    EXPECT_GT(device.pending(), 0u) << "step " << i;
  }
  // A step, of however many micro-batches, reads its tokens and targets before the norm is known.
  EXPECT_EQ(device.copies_beside, 2 * 3);  // all but those of the first
  EXPECT_EQ(device.replays > 0, GetParam().executor == ExecutorKind::kCompiled);
}

// The log of a run: every step in order, with its own numbers.
std::vector<std::vector<double>> steps_of(Device& device, const TrainOptions& options) {
  std::vector<std::vector<double>> out;
  train(device, options, some_tokens(), some_tokens(), nullptr, [&](const TrainStep& step) {
    out.push_back({static_cast<double>(step.step), step.loss, step.grad_norm, step.lr,
                   step.validation_loss.value_or(-1.0)});
  });
  return out;
}

TEST_P(EarlyResultsTest, ALogHasTheNumbersOfADeviceThatWaits) {
  TrainOptions options = options_of(GetParam());
  options.validate_every = 3;
  options.validation_batches = 2;
  const auto plain = cpu();
  DeferringDevice device(cpu());
  const auto expected = steps_of(*plain, options), seen = steps_of(device, options);
  EXPECT_EQ(seen.size(), 6u);
  EXPECT_EQ(seen, expected);
}

TEST_P(EarlyResultsTest, WeightsAfterTheLastStepAreThoseOfADeviceThatWaits) {
  const auto weights_on = [&](Device& device) {
    Trainer trainer(device, options_of(GetParam()), some_tokens(), nullptr);
    initialize_parameters(trainer.store(), 3);
    for (std::int64_t i = 0; i < 4; ++i) trainer.step(i);
    std::map<std::string, std::vector<std::byte>> out;
    for (const auto& [name, tensor] : parameters_of(trainer.store())) out[name] = tensor.bytes;
    return out;
  };
  const auto plain = cpu();
  DeferringDevice device(cpu());
  EXPECT_EQ(weights_on(device), weights_on(*plain));
}

TEST_P(EarlyResultsTest, AStepThatIsNotFiniteStillChangesNothing) {
  DeferringDevice device(cpu());
  Trainer trainer(device, options_of(GetParam()), some_tokens(), nullptr);
  initialize_parameters(trainer.store(), 3);
  for (std::int64_t i = 0; i < 2; ++i) EXPECT_FALSE(trainer.step(i).not_finite);
  const std::string name = "layers.1.ffn.w2.weight";
  HostTensor weight = trainer.store().get(name);
  const HostTensor good = weight;
  weight.as<float>()[5] = std::numeric_limits<float>::infinity();
  trainer.store().set(name, weight);
  const auto before = parameters_of(trainer.store());
  EXPECT_TRUE(trainer.step(2).not_finite);
  for (const auto& [key, value] : before) {
    EXPECT_EQ(trainer.store().get(key).bytes, value.bytes) << key;
  }
  trainer.store().set(name, good);
  EXPECT_FALSE(trainer.step(2).not_finite);
}

}  // namespace
}  // namespace tracestep
