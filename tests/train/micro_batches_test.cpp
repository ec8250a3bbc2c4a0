// The programs of a step in micro-batches, beside what a training of them holds.
#include "spec/micro_batches.h"

#include <gtest/gtest.h>

#include "backends/comm/local/local_group.h"
#include "backends/cpu/cpu_device.h"
#include "ops/functions.h"
#include "spec/parse_words.h"
#include "support/tiny_training.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

std::int64_t peak_of_training(const TrainOptions& options) {
  const int ranks = options.run.parallel.ranks;
  const auto first = make_cpu_device({.threads = 1});
  std::vector<std::unique_ptr<Device>> others;
  for (int rank = 1; rank < ranks; ++rank) others.push_back(make_cpu_device({.threads = 1}));
  const RankDevices devices = ranks == 1
                                  ? RankDevices(*first)
                                  : RankDevices(*first, std::move(others), make_local_group(ranks));
  Trainer trainer(devices, options, testing::some_tokens(), nullptr);
  trainer.step(0);
  first->allocator().reset_peak();
  trainer.step(1);
  return first->allocator().stats().peak_requested_bytes;
}

TEST(MicroBatchesTest, TheirPeakIsThatOfATrainingThatAddsThemUp) {
  ops::register_all();
  for (const char* parallel :
       {"none", "dp=2", "dp=2,shard=1", "dp=2,shard=2", "dp=2,shard=3", "dp=2,tp=2"}) {
    for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
      for (const char* precision : {"fp32", "bf16", "fp8"}) {
        TrainOptions options = testing::tiny_training();
        options.run.parallel = parse_parallel("test", parallel);
        options.run.executor = executor;
        options.run.precision = parse_precision("test", precision);
        options.run.fp8_products = Float8Products::kAll;
        options.run.shape.batch = 4;
        options.run.model.vocab = 24;  // which two ranks can divide
        options.accumulate = 3;
        RunSpec whole = options.run;
        whole.shape.batch *= options.accumulate;
        const DeviceTraits traits{.threads = 1};
        EXPECT_EQ(predicted_peak_bytes(executor, parts_of_step(whole, 3, traits), traits),
                  peak_of_training(options))
            << parallel << " " << name_of(executor) << " " << precision;
      }
    }
  }
}

// Nothing waits for a norm, so a training holds what a step with early updates does.
TEST(EarlyUpdatesTest, ATrainingHoldsNoMoreThanItsStep) {
  ops::register_all();
  TrainOptions options = testing::tiny_training();
  options.run.model = {.vocab = 23, .d_model = 64, .d_ff = 128, .layers = 4, .heads = 2};
  const auto peak_and_loss = [&](UpdateTime when) {
    options.run.updates = when;
    const auto device = make_cpu_device({.threads = 1});
    Trainer trainer(RankDevices(*device), options, testing::some_tokens(), nullptr);
    trainer.step(0);
    device->allocator().reset_peak();
    const double loss = trainer.step(1).loss;
    return std::pair(device->allocator().stats().peak_requested_bytes, loss);
  };
  const auto [late_peak, late_loss] = peak_and_loss(UpdateTime::kEnd);
  const auto [early_peak, early_loss] = peak_and_loss(UpdateTime::kEarly);
  EXPECT_EQ(early_loss, late_loss);
  const DeviceTraits traits{.threads = 1};
  EXPECT_EQ(early_peak, predicted_peak_bytes(options.run.executor,
                                             parts_of_step(options.run, 1, traits), traits));
  EXPECT_LT(early_peak, late_peak - 100'000);
}

}  // namespace
}  // namespace tracestep
