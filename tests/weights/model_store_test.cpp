#include "weights/model_store.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backends/cpu/cpu_device.h"
#include "nn/transformer.h"
#include "ops/functions.h"
#include "runtime/value_filler.h"
#include "spec/parse_words.h"
#include "spec/step_program.h"
#include "support/host_values.h"
#include "support/wrapped_device.h"

namespace tracestep {
namespace {

using Initialize = void (*)(Store&, std::uint64_t);

class ModelStoreTest : public ::testing::TestWithParam<Initialize> {
 protected:
  void SetUp() override { ops::register_all(); }

  static std::map<std::string, std::vector<double>> initial_values(std::uint64_t seed) {
    const auto device = make_cpu_device({.threads = 1});
    Store store(*device);
    const ModelConfig model{.vocab = 301, .d_model = 96, .d_ff = 256, .layers = 1, .heads = 2};
    store.bind(logits_program(model, {.batch = 1, .context = 4}));
    GetParam()(store, seed);
    std::map<std::string, std::vector<double>> out;
    for (const auto& [name, tensor] : parameters_of(store)) {
      out[name] = testing::to_doubles(tensor);
    }
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Both, ModelStoreTest,
                         ::testing::Values(initialize_parameters, initialize_for_timing),
                         [](const auto& p) { return p.index == 0 ? "trained" : "timed"; });

TEST_P(ModelStoreTest, MatricesHaveMeanZeroAndTheVarianceOfTheirShapeAndNormsAreOne) {
  const auto values = initial_values(7);
  const std::map<std::string, double> sigmas{{"token_embeddings.weight", 1.0},
                                             {"layers.0.attn.q_proj.weight", std::sqrt(2.0 / 192)},
                                             {"lm_head.weight", std::sqrt(2.0 / (301 + 96))}};
  for (const auto& [name, sigma] : sigmas) {
    double sum = 0.0, squares = 0.0;
    const std::vector<double>& x = values.at(name);
    for (double v : x) sum += v, squares += v * v;
    const double n = static_cast<double>(x.size()), mean = sum / n;
    EXPECT_NEAR(mean / sigma, 0.0, 5.0 / std::sqrt(n)) << name;
    // Cutting at three sigma takes 2.7 % of the variance.
    EXPECT_NEAR(squares / n / (sigma * sigma), 0.987, 0.013 + 5.0 / std::sqrt(n)) << name;
    EXPECT_LE(testing::max_abs(x), 3.0 * sigma) << name;
  }
  for (double v : values.at("ln_final.weight")) EXPECT_EQ(v, 1.0);
}

TEST_P(ModelStoreTest, AValueDependsOnTheSeedAndTheNameAlone) {
  const auto first = initial_values(7), again = initial_values(7), other = initial_values(8);
  EXPECT_EQ(first, again);
  EXPECT_NE(first.at("lm_head.weight"), other.at("lm_head.weight"));
  EXPECT_NE(first.at("layers.0.attn.q_proj.weight"), first.at("layers.0.attn.k_proj.weight"));
}

// A device that makes values in its own memory, as a GPU does.
class FillingDevice final : public testing::WrappedDevice, public ValueFiller {
 public:
  FillingDevice() : WrappedDevice(make_cpu_device({.threads = 1})) {}
  bool fill_uniform(void* data, DType dtype, std::int64_t count,
                    const UniformValues& values) override {
    if (dtype != DType::kF32 && dtype != DType::kBF16) return false;
    for (std::int64_t i = 0; i < count; ++i) {
      const Uint32x4 words = words_of(values, static_cast<std::uint64_t>(i / 4));
      const auto x = static_cast<float>(value_of(values, words[static_cast<std::size_t>(i % 4)]));
      if (dtype == DType::kF32) static_cast<float*>(data)[i] = x;
      if (dtype == DType::kBF16) static_cast<BF16*>(data)[i] = to_bf16(x);
    }
    filled += count;
    return true;
  }
  std::int64_t filled = 0;
};

// Every parameter and state of a store, by name, as bytes.
std::map<std::string, std::vector<std::byte>> bytes_of(const Store& store) {
  std::map<std::string, std::vector<std::byte>> out;
  for (const LeafKind kind : {LeafKind::kParameter, LeafKind::kConstant, LeafKind::kState}) {
    for (const std::string& name : store.names(kind)) out[name] = store.get(name).bytes;
  }
  return out;
}

// Matrices are made there, with their narrow copies; norms and biases are copied as elsewhere.
TEST(TimedValuesTest, ADeviceThatMakesValuesItselfHoldsTheBitsOfTheHosts) {
  ops::register_all();
  RunSpec spec;
  spec.model = {.vocab = 101, .d_model = 64, .d_ff = 136, .layers = 2, .heads = 2};
  spec.shape = {.batch = 2, .context = 16};
  spec.mode = Mode::kStep;
  spec.executor = ExecutorKind::kCompiled;  // which keeps narrow copies
  std::size_t narrow_copies = 0;
  for (const char* precision : {"fp32", "bf16", "bf16-pure", "fp16"}) {
    spec.precision = parse_precision("test", precision);
    FillingDevice filling;
    const auto plain = make_cpu_device({.threads = 1});
    Store there(filling), here(*plain);
    there.bind(step_program(spec, filling));
    here.bind(step_program(spec, *plain));
    initialize_for_timing(there, 7);
    initialize_for_timing(here, 7);
    const auto expected = bytes_of(here);
    EXPECT_EQ(bytes_of(there), expected) << precision;
    EXPECT_GT(filling.filled, 90'000) << precision;
    for (const std::string& name : here.names(LeafKind::kParameter)) {
      narrow_copies += expected.contains(shadow_name(name)) ? 1 : 0;
    }
  }
  EXPECT_GT(narrow_copies, 0);
}

}  // namespace
}  // namespace tracestep
