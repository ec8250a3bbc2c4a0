#include "weights/model_store.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backends/cpu/cpu_device.h"
#include "nn/transformer.h"
#include "ops/functions.h"
#include "support/host_values.h"

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

}  // namespace
}  // namespace tracestep
