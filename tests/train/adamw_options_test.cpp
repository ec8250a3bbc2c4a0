// The options of AdamW reach the updates of a training, as its formula has them.
#include <cmath>

#include <gtest/gtest.h>

#include "backends/cpu/cpu_device.h"
#include "backends/reference/reference_device.h"
#include "ops/functions.h"
#include "spec/parse_words.h"
#include "support/temp_folder.h"
#include "support/tiny_training.h"
#include "train/evaluate.h"
#include "weights/safetensors.h"

namespace tracestep {
namespace {

using Weights = std::map<std::string, std::vector<double>>;

Weights read(const std::filesystem::path& path) {
  Weights out;
  const SafetensorsFile file(path);
  for (const std::string& name : file.names()) {
    const HostTensor wide = widened(file.read(name));
    const auto values = wide.as<double>();
    out[name].assign(values.begin(), values.end());
  }
  return out;
}

class AdamwOptionsTest : public ::testing::Test {
 protected:
  AdamwOptionsTest() {
    ops::register_all();
    options_ = testing::tiny_training();
    options_.order = Order::kSequential;
    options_.schedule.lr = 0.01;
    options_.run.optimizer.beta1 = 0.8;
    options_.run.optimizer.beta2 = 0.95;
    options_.run.optimizer.eps = 1e-3;
  }

  std::filesystem::path weights_after(std::int64_t steps) {
    options_.steps = steps;
    options_.save = folder_ / std::to_string(steps);
    train(*make_reference_device(), options_, testing::some_tokens(), nullptr, nullptr, {});
    return options_.save;
  }
  // Gradients on the batch of step `step`, counted from 0, at the weights before it.
  Weights gradients(const std::filesystem::path& weights, std::int64_t step) {
    EvalOptions options{.run = options_.run, .init = weights, .batches = 1};
    options.gradients = folder_ / "gradients";
    const auto& shape = options.run.shape;
    std::vector<std::int64_t> read_tokens(
        static_cast<std::size_t>(shape.batch * shape.context + 1));
    testing::some_tokens()->read(step * shape.batch * shape.context, read_tokens);
    evaluate(*make_reference_device(), options,
             memory_tokens("batch", {read_tokens.begin(), read_tokens.end()}));
    return read(options.gradients);
  }

  TempFolder folder_;
  TrainOptions options_;
};

// PyTorch adds eps to the root behind the correction of its bias, and so √(1-β2ᵗ) times as much.
TEST_F(AdamwOptionsTest, TwoStepsAreThoseOfTheFormula) {
  const std::filesystem::path files[] = {weights_after(0), weights_after(1), weights_after(2)};
  const double beta1 = options_.run.optimizer.beta1, beta2 = options_.run.optimizer.beta2,
               eps = options_.run.optimizer.eps;
  Weights p = read(files[0]), m, v;
  for (int t = 1; t <= 2; ++t) {
    const Weights g = gradients(files[t - 1], t - 1), after = read(files[t]);
    for (auto& [name, weights] : p) {
      m[name].resize(weights.size());
      v[name].resize(weights.size());
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const double x = g.at(name)[i];
        m[name][i] = beta1 * m[name][i] + (1 - beta1) * x;
        v[name][i] = beta2 * v[name][i] + (1 - beta2) * x * x;
        const double mean = m[name][i] / (1 - std::pow(beta1, t));
        const double correction = std::sqrt(1 - std::pow(beta2, t));
        const double root = std::sqrt(v[name][i]) / correction;
        weights[i] -= options_.schedule.lr * mean / (root + eps / correction);
        ASSERT_NEAR(weights[i], after.at(name)[i], 2e-6) << name << " " << i << " step " << t;
      }
    }
  }
}

// Moments, ranks' parts, early updates and joined ones: each kernel reads the numbers of its node.
TEST_F(AdamwOptionsTest, EveryFormOfTheUpdateTakesThem) {
  const auto last_loss = [](const TrainOptions& options) {
    double out = 0;
    train(*make_cpu_device({.threads = 1}), options, testing::some_tokens(), nullptr, nullptr,
          [&](const TrainStep& step) { out = step.loss; });
    return out;
  };
  options_.steps = 6;
  TrainOptions usual = options_;
  usual.run.optimizer = {};
  const double expected = last_loss(options_);
  ASSERT_GT(std::abs(last_loss(usual) - expected), 0.05) << "the options make a difference";
  for (const Moments moments : kAll<Moments>) {
    for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
      for (const UpdateTime updates : kAll<UpdateTime>) {
        for (const Granularity ops : {Granularity::kFused, Granularity::kPrimitive}) {
          TrainOptions form = options_;
          form.run.optimizer.moments = moments;
          form.run.executor = executor;
          form.run.updates = updates;
          form.run.ops = ops;
          EXPECT_NEAR(last_loss(form), expected, 0.01)
              << name_of(moments) << " " << name_of(executor) << " " << name_of(updates);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tracestep
