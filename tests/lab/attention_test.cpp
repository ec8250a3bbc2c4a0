// The attention benchmark: its parts, its bytes against formulas worked out by hand, its fit.
#include "lab/study/attention.h"

#include <gtest/gtest.h>

#include "backends/null/null_device.h"
#include "base/error.h"
#include "lab/study/attention_tables.h"
#include "ops/functions.h"
#include "support/backends.h"

namespace tracestep {
namespace {

DeviceFactory planning(std::int64_t limit = 0) {
  return [limit] { return make_null_device({.memory_limit = limit}); };
}

AttentionSpec spec_of(std::int64_t context, std::int64_t width, const char* saved = "weights") {
  return {.batch = 2,
          .context = context,
          .width = width,
          .saved = parse_saved("--saved", saved),
          .warmup = 1,
          .steps = 3};
}

// q, k, v, the gradient of y, and y itself.
std::int64_t five_tensors(const AttentionSpec& s) {
  return 5 * s.batch * s.context * s.width * 4;
}

TEST(AttentionTest, OneTwoOrThreeSquareTensorsStandBeforeBackward) {
  for (const auto& [saved, count] : {std::pair{"weights", 1},
                                     {"scores+weights", 2},
                                     {"exp+weights", 2},
                                     {"scores+exp+weights", 3}}) {
    AttentionSpec spec = spec_of(64, 8, saved);
    spec.causal = false;
    EXPECT_EQ(spec.saved.count(), count);
    const AttentionResult r = measure_attention(planning(), spec);
    ASSERT_EQ(r.status, "ok") << saved;
    const std::int64_t square = spec.batch * spec.context * spec.context * 4;
    EXPECT_EQ(r.saved_bytes, count * square) << saved;
    // In parts, softmax also saves the sum of each row.
    const std::int64_t sums = spec.saved.exp ? spec.batch * spec.context * 4 : 0;
    EXPECT_EQ(r.before_backward_bytes, five_tensors(spec) + count * square + sums) << saved;
  }
}

TEST(AttentionTest, EveryBackEndHoldsWhatWasPredicted) {
  for (const std::string& name : testing::backend_names()) {
    for (const char* saved : {"weights", "scores+weights", "scores+exp+weights"}) {
      for (bool causal : {true, false}) {
        AttentionSpec spec = spec_of(48, 16, saved);
        spec.causal = causal;
        const AttentionResult r =
            measure_attention([&] { return testing::backend_named(name).make({}); }, spec);
        ASSERT_EQ(r.status, "ok") << r.detail;
        EXPECT_EQ(r.before_backward_bytes, r.predicted_before_backward_bytes) << saved;
        EXPECT_EQ(r.peak_bytes, r.predicted_peak_bytes) << saved;
        EXPECT_EQ(r.forward.samples_ms.size(), 3u);
        EXPECT_EQ(r.backward.samples_ms.size(), 3u);
        EXPECT_EQ(r.forward.warmup_ms.size(), 1u);
        for (double ms : r.backward.samples_ms) EXPECT_GT(ms, 0);
        EXPECT_GT(r.forward.busy_ms, 0);
        EXPECT_GT(r.backward.busy_ms, 0);
      }
    }
  }
}

TEST(AttentionTest, BackwardHasTwiceTheProductsOfForward) {
  const AttentionSpec spec = spec_of(32, 8);
  const AttentionResult r = measure_attention(planning(), spec);
  // Two products of 2·B·S²·D forward, four backward.
  EXPECT_EQ(r.forward.flops, 2 * 2 * 2 * 32 * 32 * 8);
  EXPECT_EQ(r.backward.flops, 2 * r.forward.flops);
}

TEST(AttentionTest, TheLossIsInNeitherPart) {
  const auto device = planning()();
  const AttentionProgram p = attention_program(spec_of(32, 8), *device);
  int outside = 0;
  for (std::size_t i = 0; i < p.program.nodes.size(); ++i) {
    const Node& node = p.program.nodes[i];
    const auto id = static_cast<NodeId>(i);
    if (node.op->is_view()) continue;
    const bool is_loss = node.origin().path == "loss";
    if (p.is_forward(id)) {
      EXPECT_EQ(node.origin().phase, Phase::kForward);
      EXPECT_FALSE(is_loss);
    } else if (p.is_backward(id)) {
      EXPECT_EQ(node.origin().phase, Phase::kBackward);
      EXPECT_FALSE(is_loss) << node.op->name;
    } else {
      EXPECT_TRUE(is_loss) << node.op->name;
      ++outside;
    }
  }
  EXPECT_GE(outside, 2);  // y·upstream and its sum
}

TEST(AttentionTest, ALimitAtThePeakPassesAndOneByteLessFails) {
  const AttentionSpec spec = spec_of(64, 8);
  const AttentionResult fits = measure_attention(planning(), spec);
  EXPECT_EQ(measure_attention(planning(fits.peak_bytes), spec).status, "ok");
  const AttentionResult tight = measure_attention(planning(fits.peak_bytes - 1), spec);
  EXPECT_EQ(tight.status, "oom");
  EXPECT_EQ(tight.predicted_peak_bytes, fits.peak_bytes);
  EXPECT_TRUE(tight.forward.samples_ms.empty());
  EXPECT_FALSE(tight.detail.empty());
}

TEST(AttentionTest, TheNamesOfSavedTensorsAreRead) {
  EXPECT_EQ(name_of(parse_saved("--saved", "weights+scores")), "scores+weights");
  EXPECT_EQ(name_of(parse_saved("--saved", "exp+weights")), "exp+weights");
  for (const char* wrong : {"scores", "weights+weights", "wieghts", "", "weights+"}) {
    EXPECT_THROW(parse_saved("--saved", wrong), Error) << wrong;
  }
}

TEST(AttentionTest, AQuadraticIsFoundThroughItsPoints) {
  const std::vector<double> s = {256, 1024, 4096, 16384};
  std::vector<double> bytes;
  for (double x : s) bytes.push_back(32 * x * x + 2560 * x + 64);
  const QuadraticFit fit = fit_quadratic(s, bytes);
  EXPECT_NEAR(fit.a, 32, 1e-6);
  EXPECT_NEAR(fit.b, 2560, 1e-3);
  EXPECT_LT(fit.largest_error, 1e-6);
  bytes[1] *= 1.5;  // no quadratic goes through these
  EXPECT_GT(fit_quadratic(s, bytes).largest_error, 0.01);
}

TEST(AttentionTest, BytesPerSquaredContextCountTheSavedTensors) {
  for (const auto& [saved, count] : {std::pair{"weights", 1}, {"scores+exp+weights", 3}}) {
    std::vector<AttentionResult> results;
    for (std::int64_t context : {64, 128, 256, 512}) {
      AttentionSpec spec = spec_of(context, 16, saved);
      spec.causal = false;
      results.push_back(measure_attention(planning(), spec));
    }
    const Table table = attention_scaling_table(results);
    ASSERT_EQ(table.rows.size(), 1u);
    // B·4 = 8 bytes per S² and tensor.
    EXPECT_NEAR(table.rows[0][6].as_double(), 8 * count, 1e-6);
    EXPECT_NEAR(table.rows[0][7].as_double(), count, 1e-6);
    // Five tensors of B·D floats, and for softmax in parts B sums.
    EXPECT_NEAR(table.rows[0][8].as_double(), 5 * 2 * 16 * 4 + (count == 3 ? 8 : 0), 1e-3);
  }
}

TEST(AttentionTest, TwoContextsAreNoFit) {
  std::vector<AttentionResult> results;
  for (std::int64_t context : {64, 128}) {
    results.push_back(measure_attention(planning(), spec_of(context, 16)));
  }
  EXPECT_TRUE(attention_scaling_table(results).rows.empty());
  EXPECT_EQ(attention_table(results, Json::object()).rows.size(), 2u);
}

}  // namespace
}  // namespace tracestep
