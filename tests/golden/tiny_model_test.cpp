// The tiny model against values computed by PyTorch with the same weights and tokens.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "backends/reference/reference_device.h"
#include "base/json.h"
#include "exec/eager.h"
#include "ops/functions.h"
#include "passes/form_passes.h"
#include "spec/step_program.h"
#include "support/backends.h"
#include "support/host_values.h"
#include "support/paths.h"
#include "tokens/batches.h"
#include "train/evaluate.h"
#include "train/schedule.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

using testing::to_doubles;

const std::filesystem::path kFolder = testing::source_folder() / "tests/golden";
const ModelConfig kTiny{.vocab = 97, .d_model = 32, .d_ff = 64, .layers = 2, .heads = 4};
constexpr BatchShape kShape{.batch = 3, .context = 16};
constexpr int kSteps = 10;

double relative_l2(const std::vector<double>& got, const std::vector<double>& want) {
  double difference = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(difference / norm);
}

double max_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double out = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) out = std::max(out, std::abs(a[i] - b[i]));
  return out;
}

TokenSourcePtr tiny_tokens() {
  return open_token_file(kFolder / "tiny_tokens.bin", TokenDType::kUint16);
}

Json training() {
  std::ifstream in(kFolder / "tiny_training.json");
  std::stringstream text;
  text << in.rdbuf();
  return Json::parse(text.str(), "tiny_training.json");
}

class TinyModelTest : public ::testing::TestWithParam<Granularity> {
 protected:
  void SetUp() override { ops::register_all(); }
};

void expect_logits_and_gradients(Device& device, Granularity ops) {
  const auto folder = std::filesystem::path(::testing::TempDir());
  EvalOptions options{.run = {.model = kTiny, .shape = kShape, .ops = ops}};
  options.init = kFolder / "tiny_weights.safetensors";
  options.batches = 1;
  options.logits = folder / "logits.safetensors";
  options.gradients = folder / "gradients.safetensors";
  evaluate(device, options, tiny_tokens());
  const SafetensorsFile expected(kFolder / "tiny_expected.safetensors");
  const SafetensorsFile logits(options.logits), gradients(options.gradients);
  EXPECT_LE(max_difference(to_doubles(logits.read("logits")), to_doubles(expected.read("logits"))),
            2e-4);
  EXPECT_EQ(gradients.entries().size() + 1, expected.entries().size());
  for (const auto& entry : gradients.entries()) {
    EXPECT_LE(relative_l2(to_doubles(gradients.read(entry.name)),
                          to_doubles(expected.read("grad." + entry.name))),
              1e-5)
        << entry.name;
  }
}

TEST_P(TinyModelTest, LogitsAndEveryGradientAgreeWithPyTorch) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    SCOPED_TRACE(backend.name);
    expect_logits_and_gradients(*backend.make({.guarded = true}), GetParam());
  }
}

// Ten steps on `device`; float64 when `wide`.
struct Run {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<double>> weights;
};

Run ten_steps(Device& device, Granularity ops, double clip, bool wide) {
  RunSpec spec{.model = kTiny, .shape = kShape, .mode = Mode::kStep, .ops = ops};
  spec.optimizer.weight_decay = 0.1;
  spec.optimizer.clip = clip;
  spec.optimizer.report_norm = true;
  spec.verify = true;
  Program program = step_program(spec, device);
  if (wide) program = as_float64(program);
  Store store(device);
  EagerExecutor executor(store, std::move(program));
  const SafetensorsFile weights(kFolder / "tiny_weights.safetensors");
  for (const std::string& name : store.names(LeafKind::kParameter)) {
    store.set(name, testing::converted(weights.read(name), store.at(name).type.dtype));
  }
  const Batches batches(tiny_tokens(), {kShape.batch, kShape.context, Order::kSequential, 0});
  const auto set_scalar = [&](const char* name, double value) {
    const DType dtype = wide ? DType::kF64 : DType::kF32;
    executor.set_input(name, testing::from_doubles(dtype, {}, std::vector{value}));
  };
  Run out;
  for (int step = 0; step < kSteps; ++step) {
    const Batch batch = batches.at(step);
    executor.set_input("tokens", batch.tokens);
    executor.set_input("targets", batch.targets);
    set_scalar("lr", 3e-3);
    set_scalar("step_size", step_size(3e-3, 0.9, 0.999, step + 1));
    executor.run();
    out.losses.push_back(executor.scalar("loss"));
    out.norms.push_back(executor.scalar("grad_norm"));
  }
  for (const auto& [name, tensor] : parameters_of(store)) out.weights[name] = to_doubles(tensor);
  return out;
}

void expect_like_pytorch(const Run& run, bool clipped, double loss_bound, double weight_bound) {
  const Json all = training();
  const Json& expected = all.at(clipped ? "clipped" : "unclipped");
  for (std::size_t i = 0; i < kSteps; ++i) {
    EXPECT_NEAR(run.losses[i], expected.at("losses").items()[i].as_double(), loss_bound);
    EXPECT_NEAR(run.norms[i], expected.at("grad_norms").items()[i].as_double(), 10 * loss_bound);
  }
  const SafetensorsFile after(kFolder / (clipped ? "tiny_weights_after10_clipped.safetensors"
                                                 : "tiny_weights_after10.safetensors"));
  for (const auto& [name, values] : run.weights) {
    EXPECT_LE(relative_l2(values, to_doubles(after.read(name))), weight_bound) << name;
  }
}

TEST_P(TinyModelTest, TenStepsAgreeWithPyTorch) {
  for (bool clipped : {false, true}) {
    for (const testing::Backend& backend : testing::backends_under_test()) {
      SCOPED_TRACE(backend.name);
      const auto device = backend.make({});
      expect_like_pytorch(ten_steps(*device, GetParam(), clipped ? 1.0 : 0.0, false), clipped, 1e-4,
                          1e-4);
    }
  }
}

TEST_P(TinyModelTest, TenStepsInFloat64AgreeWithPyTorchMuchCloser) {
  for (bool clipped : {false, true}) {
    const auto device = make_reference_device();
    expect_like_pytorch(ten_steps(*device, GetParam(), clipped ? 1.0 : 0.0, true), clipped, 1e-9,
                        1e-7);
  }
}

INSTANTIATE_TEST_SUITE_P(Granularities, TinyModelTest,
                         ::testing::Values(Granularity::kPrimitive, Granularity::kFused),
                         [](const auto& p) { return std::string(name_of(p.param)); });

}  // namespace
}  // namespace tracestep
