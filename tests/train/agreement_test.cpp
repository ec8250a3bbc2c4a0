// Two hundred steps on every back end against the oracle in float64: rounding errors grow from
// step to step, and a wrong gradient or update would pull the losses apart much faster.
#include <gtest/gtest.h>

#include <cmath>

#include "backends/reference/reference_device.h"
#include "ops/functions.h"
#include "support/backends.h"
#include "train/loop.h"

namespace tracestep {
namespace {

constexpr int kSteps = 200;

std::vector<double> losses_on(Device& device, Granularity ops, const char* precision = "fp32",
                              AttentionForm attention = AttentionForm::kNaive) {
  TrainOptions options;
  options.run.attention = attention;
  options.run.model = {.vocab = 29, .d_model = 16, .d_ff = 32, .layers = 2, .heads = 2};
  options.run.precision = parse_precision("test", precision);
  options.run.shape = {.batch = 2, .context = 9};
  options.run.ops = ops;
  options.steps = kSteps;
  options.run.seed = 5;
  options.schedule = {ScheduleKind::kCosine, 3e-3, 3e-4, 20, kSteps};
  options.run.optimizer.weight_decay = 0.1;
  options.run.optimizer.clip = 1.0;
  std::vector<std::int32_t> tokens;
  std::uint32_t state = 11;
  for (int i = 0; i < 4000; ++i) {
    state = state * 1664525u + 1013904223u;
    // Half of them follow from the one before: there is something to learn.
    const bool follows = i > 0 && (state >> 30) % 2 == 0;
    tokens.push_back(follows ? (tokens.back() * 3 + 1) % 29
                             : static_cast<std::int32_t>((state >> 16) % 29));
  }
  std::vector<double> out;
  train(device, options, memory_tokens("tokens", tokens), nullptr, nullptr,
        [&](const TrainStep& step) { out.push_back(step.loss); });
  return out;
}

double largest_gap(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double out = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) out = std::max(out, std::abs(a[i] - b[i]));
  return out;
}

const std::vector<double>& oracle_losses() {
  static const std::vector<double> losses = [] {
    ops::register_all();
    return losses_on(*make_reference_device(), Granularity::kFused);
  }();
  return losses;
}

TEST(AgreementTest, TwoHundredStepsFollowTheOracle) {
  const std::vector<double>& expected = oracle_losses();
  EXPECT_LT(expected.back(), 0.95 * expected.front());
  for (const testing::Backend& backend : testing::backends_under_test()) {
    for (Granularity ops : {Granularity::kPrimitive, Granularity::kFused}) {
      const auto device = backend.make({});
      const double gap = largest_gap(losses_on(*device, ops), expected);
      EXPECT_LE(gap, 1e-4) << backend.name << " " << name_of(ops);
      RecordProperty(backend.name + "_" + std::string(name_of(ops)), std::to_string(gap));
    }
  }
}

TEST(AgreementTest, TiledAttentionFollowsTheOracleAsWell) {
  const std::vector<double>& expected = oracle_losses();
  for (const testing::Backend& backend : testing::backends_under_test()) {
    for (const auto& [precision, bound] : {std::pair{"fp32", 1e-4}, std::pair{"bf16", 0.02}}) {
      const auto device = backend.make({});
      const std::vector<double> losses =
          losses_on(*device, Granularity::kFused, precision, AttentionForm::kFlash);
      EXPECT_LE(largest_gap(losses, expected), bound) << backend.name << " " << precision;
    }
  }
}

// Autocast rounds the operands of products to 8 or 11 bits: unit roundoff 2^-9 or 2^-12.
TEST(AgreementTest, MixedPrecisionStaysNearTheOracle) {
  const std::vector<double>& expected = oracle_losses();
  for (const testing::Backend& backend : testing::backends_under_test()) {
    for (const auto& [precision, bound] : {std::pair{"bf16", 0.02}, std::pair{"fp16", 0.004}}) {
      const auto device = backend.make({});
      const double gap = largest_gap(losses_on(*device, Granularity::kFused, precision), expected);
      EXPECT_LE(gap, bound) << backend.name << " " << precision;
      RecordProperty(backend.name + "_" + precision, std::to_string(gap));
    }
  }
}

}  // namespace
}  // namespace tracestep
