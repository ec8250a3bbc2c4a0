// Checks programs against closed forms: parameters (M1), tensors saved for backward term by
// term (M2 and docs/memory.md), static bytes (M3), matrix products (M5) and their FLOPs
// (M6).
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <tuple>

#include "analysis/cost.h"
#include "analysis/memory_map.h"
#include "analysis/saved.h"
#include "backends/null/null_device.h"
#include "nn/transformer.h"
#include "ops/functions.h"
#include "passes/pipeline.h"
#include "runtime/store.h"

namespace tracestep {
namespace {

constexpr std::int64_t kFloatBytes = 4;
constexpr Granularity kBoth[] = {Granularity::kPrimitive, Granularity::kFused};

// The letters of docs/glossary.md; no two sizes are equal, so that no term can stand for another.
struct Letters {
  std::int64_t b, t, c, h, f, v, l;

  ModelConfig model() const {
    return {.vocab = v, .d_model = c, .d_ff = f, .layers = l, .heads = h};
  }
  BatchShape shape() const { return {.batch = b, .context = t}; }
  std::int64_t btc() const { return b * t * c; }
  std::int64_t btf() const { return b * t * f; }
  std::int64_t bhtt() const { return b * h * t * t; }
};

constexpr Letters kModel{.b = 2, .t = 5, .c = 24, .h = 3, .f = 28, .v = 19, .l = 2};

Program program_of(const Letters& s, Mode mode, Granularity ops,
                   GradientKind gradients = GradientKind::kTransient) {
  RunSpec run{.verify = true};
  run.mode = mode;
  run.ops = ops;
  run.gradients = gradients;
  const Program forward = mode == Mode::kInference ? logits_program(s.model(), s.shape())
                                                   : loss_program(s.model(), s.shape());
  return run_pipeline(forward, run).program;
}

std::int64_t saved_bytes(const Letters& s, Granularity ops) {
  return saved_bytes(program_of(s, Mode::kForwardBackward, ops));
}

// Elements of four bytes that one layer saves; primitive is M2 and one number per row beside it.
std::int64_t per_layer(const Letters& s, Granularity ops) {
  const std::int64_t rows = s.b * s.t;
  if (ops == Granularity::kFused) return 8 * s.btc() + 3 * s.btf() + s.bhtt() + 2 * rows;
  return 10 * s.btc() + 5 * s.btf() + 2 * s.bhtt() + 2 * rows + s.b * s.h * s.t;
}

// Bytes that are saved once per model: around the last norm, the head and the loss, and tables.
std::int64_t once_bytes(const Letters& s, Granularity ops) {
  const std::int64_t rows = s.b * s.t, table = s.t * s.c / s.h;
  const std::int64_t residuals = ops == Granularity::kFused ? 2 * s.btc() : 3 * s.btc();
  const std::int64_t mask_bytes = ops == Granularity::kFused ? 0 : s.t * s.t;
  return kFloatBytes * (residuals + rows + rows * s.v + rows + table) + mask_bytes;
}

class SavedTermsTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
};

TEST_F(SavedTermsTest, EachLayerSavesExactlyItsFormula) {
  // With one sequence, one head or one token a copy could turn into a view.
  for (Letters s : {kModel, Letters{1, 6, 12, 3, 10, 7, 1}, Letters{3, 4, 8, 1, 10, 7, 1},
                    Letters{4, 1, 12, 2, 14, 5, 1}}) {
    for (Granularity ops : kBoth) {
      s.l = 1;
      const std::int64_t one = saved_bytes(s, ops);
      s.l = 2;
      const std::int64_t two = saved_bytes(s, ops);
      EXPECT_EQ(two - one, kFloatBytes * per_layer(s, ops)) << name_of(ops) << " B=" << s.b;
      EXPECT_EQ(one, kFloatBytes * per_layer(s, ops) + once_bytes(s, ops)) << name_of(ops);
    }
  }
}

// Path below the layer, op and elements: the rows of the tables in docs/memory.md.
using Terms = std::multiset<std::tuple<std::string, std::string, std::int64_t>>;

Terms terms_of_second_layer(const Letters& s, Granularity ops) {
  Terms out;
  const std::string input = "layers.0.ffn.residual", prefix = "layers.1.",
                    output = "layers.1.ffn.residual";
  const Program program = program_of(s, Mode::kForwardBackward, ops);
  for (const Saved& saved : saved_for_backward(program)) {
    const Node& maker = program.node(saved.producer);
    const std::string& path = maker.origin().path;
    const bool is_input = path == input;
    if (!is_input && (!path.starts_with(prefix) || path == output)) continue;
    out.emplace(is_input ? "input" : path.substr(prefix.size()), maker.op->name,
                saved.bytes / kFloatBytes);
  }
  return out;
}

TEST_F(SavedTermsTest, EveryTermOfAFusedLayerIsTheOneInTheTable) {
  const Letters& s = kModel;
  const std::int64_t btc = s.btc(), btf = s.btf(), rows = s.b * s.t;
  const Terms expected{{"input", "add", btc},
                       {"ln1", "rms_norm", btc},
                       {"ln1", "rms_norm", rows},
                       {"attn.rope", "rope", btc},
                       {"attn.rope", "rope", btc},
                       {"attn.values", "copy", btc},
                       {"attn.softmax", "softmax", s.bhtt()},
                       {"attn", "copy", btc},
                       {"attn.residual", "add", btc},
                       {"ln2", "rms_norm", btc},
                       {"ln2", "rms_norm", rows},
                       {"ffn.w1", "matmul", btf},
                       {"ffn.w3", "matmul", btf},
                       {"ffn.swiglu", "swiglu", btf}};
  EXPECT_EQ(terms_of_second_layer(s, Granularity::kFused), expected);
}

TEST_F(SavedTermsTest, EveryTermOfAPrimitiveLayerIsTheOneInTheTable) {
  const Letters& s = kModel;
  const std::int64_t btc = s.btc(), btf = s.btf(), rows = s.b * s.t;
  const Terms expected{{"input", "add", btc},
                       {"ln1", "mul", btc},
                       {"ln1", "mul", btc},
                       {"ln1", "rsqrt", rows},
                       {"attn.rope", "concat", btc},
                       {"attn.rope", "concat", btc},
                       {"attn.values", "copy", btc},
                       {"attn.softmax", "exp", s.bhtt()},
                       {"attn.softmax", "div", s.bhtt()},
                       {"attn.softmax", "sum", s.b * s.h * s.t},
                       {"attn", "copy", btc},
                       {"attn.residual", "add", btc},
                       {"ln2", "mul", btc},
                       {"ln2", "mul", btc},
                       {"ln2", "rsqrt", rows},
                       {"ffn.w1", "matmul", btf},
                       {"ffn.w3", "matmul", btf},
                       {"ffn.swiglu", "sigmoid", btf},
                       {"ffn.swiglu", "mul", btf},
                       {"ffn.swiglu", "mul", btf}};
  EXPECT_EQ(terms_of_second_layer(s, Granularity::kPrimitive), expected);
}

TEST_F(SavedTermsTest, TheForwardModeKeepsAsManyBytesAsTheStepSaves) {
  for (Granularity ops : kBoth) {
    const Program forward = program_of(kModel, Mode::kForward, ops);
    EXPECT_EQ(saved_bytes(forward), saved_bytes(kModel, ops)) << name_of(ops);
  }
}

TEST(ClosedFormsTest, EveryPresetHasThePublishedNumberOfParameters) {
  const std::map<std::string, std::int64_t> published{
      {"small", 128'625'408}, {"medium", 423'183'360}, {"large", 969'411'840},
      {"xl", 1'998'235'200},  {"2.7B", 3'406'809'600}, {"xl-2026", 3'406'809'600},
      {"10B", 12'832'823'808}};
  for (const ModelConfig& config : model_presets()) {
    const Program program = logits_program(config, {.batch = 1, .context = 2});
    EXPECT_EQ(parameter_count(program), parameter_formula(config)) << config.name;
    const auto found = published.find(config.name);
    if (found != published.end()) {
      EXPECT_EQ(parameter_count(program), found->second) << config.name;
    }
  }
}

TEST(ClosedFormsTest, PersistentGradientsAndAdamwTakeSixteenBytesPerParameter) {
  ops::register_all();
  const std::int64_t parameters = parameter_formula(kModel.model());
  const auto device = make_null_device();
  Store store(*device);
  const auto held = [&] { return device->allocator().stats().requested_bytes; };
  store.bind(program_of(kModel, Mode::kInference, Granularity::kFused));
  EXPECT_EQ(held(), 4 * parameters) << "weights";
  store.bind(program_of(kModel, Mode::kStep, Granularity::kFused));
  EXPECT_EQ(held(), 12 * parameters) << "weights and AdamW's m and v; gradients are transient";
  store.bind(
      program_of(kModel, Mode::kForwardBackward, Granularity::kFused, GradientKind::kPersistent));
  EXPECT_EQ(held(), 16 * parameters) << "gradients as states";
}

struct Products {
  std::int64_t weight = 0, attention = 0;
};

Products products_of(const Program& program) {
  Products out;
  for (const Node& node : program.nodes) {
    if (node.op->kernel_class != KernelClass::kGemm) continue;
    (program.type(node.outputs[0]).shape.rank() == 2 ? out.weight : out.attention) += 1;
  }
  return out;
}

TEST(ClosedFormsTest, AForwardPassHasSevenWeightProductsPerLayerAndOneForTheHead) {
  ops::register_all();
  for (Granularity ops : kBoth) {
    const Products forward = products_of(program_of(kModel, Mode::kInference, ops));
    EXPECT_EQ(forward.weight, 7 * kModel.l + 1) << name_of(ops);
    EXPECT_EQ(forward.attention, 2 * kModel.l) << name_of(ops);
    const Products step = products_of(program_of(kModel, Mode::kStep, ops));
    EXPECT_EQ(step.weight, 3 * forward.weight) << "one for each operand's gradient";
    EXPECT_EQ(step.attention, 3 * forward.attention) << name_of(ops);
  }
}

TEST(ClosedFormsTest, TheFlopsOfMatrixProductsFollowTheFormula) {
  ops::register_all();
  const auto& [b, t, c, h, f, v, l] = kModel;
  const std::int64_t expected =
      2 * b * t * (4 * c * c + 3 * c * f) * l + 2 * b * t * c * v + 4 * b * t * t * c * l;
  for (Granularity ops : kBoth) {
    EXPECT_EQ(gemm_flops(program_of(kModel, Mode::kInference, ops)), expected) << name_of(ops);
    EXPECT_EQ(gemm_flops(program_of(kModel, Mode::kForwardBackward, ops)), 3 * expected)
        << name_of(ops);
  }
}

}  // namespace
}  // namespace tracestep
