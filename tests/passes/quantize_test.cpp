// Which products run in 8 bits, what they read, and what that makes of a step.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ir/parse.h"
#include "ir/print.h"
#include "ops/functions.h"
#include "passes/form_passes.h"
#include "spec/step_program.h"
#include "support/backends.h"
#include "support/host_values.h"
#include "support/run_program.h"

namespace tracestep {
namespace {

bool yes(const OpDef&) {
  return true;
}

// A linear layer with both gradients; t tokens, from i to o.
Program layer(std::int64_t t, std::int64_t i, std::int64_t o, const std::string& path) {
  ops::register_all();
  return parse_program(fmt::format(R"(program "p" {{
  input %x : bf16[{0},{1}]
  input %g : bf16[{0},{2}]
  state %w : bf16[{2},{1}] !weight_cast
  %0 : bf16[{0},{2}] = matmul(%x, %w) {{transpose_b=true}} @ {3} forward
  %1 : bf16[{0},{1}] = matmul(%g, %w) @ {3} backward
  %2 : bf16[{2},{1}] !gradient = matmul(%g, %x) {{transpose_a=true}} @ {3} backward
  output "y" = %0
  output "dx" = %1
  output "dw" = %2
}})",
                                   t, i, o, path));
}

TEST(QuantizeTest, EachOperandIsQuantizedOnceAndReadAlongK) {
  const Program out =
      quantize(layer(32, 48, 64, "layers.0.ffn.w1"), {.products = Float8Products::kAll}, yes);
  EXPECT_EQ(print(out), R"(program "p" {
  input %x : bf16[32,48]
  input %g : bf16[32,64]
  state %w : bf16[64,48] !weight_cast
  %0, %1, %2 : f8e4m3[32,48], f8e4m3[48,32], f32[] = quantize(%x) {dtype=f8e4m3, largest=448.0} @ layers.0.ffn.w1 forward by quantize
  %3, %4, %5 : f8e4m3[64,48] !weight_cast, f8e4m3[48,64] !weight_cast, f32[] !weight_cast = quantize(%w) {dtype=f8e4m3, largest=448.0} @ layers.0.ffn.w1 forward by quantize
  %6 : bf16[32,64] = scaled_matmul(%0, %3, %2, %5) {dtype=bf16} @ layers.0.ffn.w1 forward by quantize
  %7, %8, %9 : f8e5m2[32,64], f8e5m2[64,32], f32[] = quantize(%g) {dtype=f8e5m2, largest=57344.0} @ layers.0.ffn.w1 backward by quantize
  %10 : bf16[32,48] = scaled_matmul(%7, %4, %9, %5) {dtype=bf16} @ layers.0.ffn.w1 backward by quantize
  %11 : bf16[64,48] !gradient = scaled_matmul(%8, %1, %9, %2) {dtype=bf16} @ layers.0.ffn.w1 backward by quantize
  output "y" = %6
  output "dx" = %10
  output "dw" = %11
}
)");
}

std::int64_t products_in_8_bits(const Program& program) {
  return std::ranges::count_if(program.nodes,
                               [](const Node& node) { return node.op->name == "scaled_matmul"; });
}

TEST(QuantizeTest, OnlyLayersAndSizesThatFitAreRewritten) {
  const auto count = [](const Program& program, Float8Products products) {
    return products_in_8_bits(quantize(program, {products, true}, yes));
  };
  constexpr auto kAll = Float8Products::kAll, kPaying = Float8Products::kPaying;
  EXPECT_EQ(count(layer(32, 48, 64, "layers.3.attn.q_proj"), kAll), 3);
  EXPECT_EQ(count(layer(32, 48, 64, "lm_head"), kAll), 0);
  EXPECT_EQ(count(layer(24, 48, 64, "layers.3.attn.q_proj"), kAll), 0);
  EXPECT_EQ(count(layer(32, 40, 64, "layers.3.attn.q_proj"), kAll), 0);
  EXPECT_EQ(count(layer(2048, 1280, 1280, "layers.3.attn.output_proj"), kPaying), 0);
  EXPECT_EQ(count(layer(2048, 1280, 10240, "layers.3.ffn.w1"), kPaying), 3);
  EXPECT_EQ(count(layer(4096, 2560, 2560, "layers.3.attn.output_proj"), kPaying), 3);
}

TEST(QuantizeTest, AStepWithoutSuchAProductIsRefusedWithWhatWouldHelp) {
  const auto message = [](Float8Products products, std::int64_t t) -> std::string {
    try {
      quantize(layer(t, 48, 64, "layers.0.ffn.w1"), {.products = products}, yes);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(Float8Products::kPaying, 32),
            "[precision] fp8: no product of the layers is large enough to gain by 8 bits; use "
            "bf16, or option fp8_products all");
  EXPECT_EQ(message(Float8Products::kAll, 24),
            "[precision] fp8: no product of the layers has sizes that are multiples of 16; use "
            "bf16");
  EXPECT_EQ(message(Float8Products::kAll, 32), "");
}

// The same numbers, whether the device has kernels or runs the parts.
TEST(QuantizeTest, ResultsAreThoseOfTheLayerWithin8Bits) {
  using namespace testing;
  const Program plain = layer(64, 48, 80, "layers.0.ffn.w1");
  const Program narrow = quantize(plain, {.products = Float8Products::kAll}, yes);
  const Tensors leaves = random_leaves(plain);
  const Tensors exact = reference_values(plain, leaves);
  const Tensors unrounded = reference_values(narrow, leaves);
  for (const Backend& backend : backends_under_test()) {
    const auto device = backend.make({.threads = 2, .guarded = true});
    const Tensors found = run_program(*device, narrow, leaves);
    for (const auto& [name, tensor] : found) {
      const std::vector<double> answer = to_doubles(exact.at(name));
      EXPECT_LT(max_difference(to_doubles(unrounded.at(name)), answer), 1e-9) << name;
      const double error = max_difference(to_doubles(tensor), answer);
      // Operands of 3 and 2 bits of mantissa: each term is off by a sixteenth and an eighth of
      // itself at the most.
      const double bound = 0.2 * 4 * static_cast<double>(name == "y" ? 48 : name == "dx" ? 80 : 64);
      EXPECT_LT(error, bound) << backend.name << " " << name;
      EXPECT_GT(error, 0.0) << backend.name << " " << name;
    }
  }
}

RunSpec step_of(ExecutorKind executor) {
  return {.model = preset("tiny"),
          .shape = {.batch = 2, .context = 64},
          .precision = parse_precision("test", "fp8"),
          .fp8_products = Float8Products::kAll,
          .executor = executor,
          .verify = true};
}

TEST(QuantizeTest, AStepMultipliesAllOfItsLayersInEightBits) {
  ops::register_all();
  for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
    const RunSpec run = step_of(executor);
    EXPECT_EQ(name_of(run.precision), "fp8");
    const Program program = step_program(run, DeviceTraits{.kind = DeviceKind::kCuda});
    // q, k and v are one product where programs are compiled, and so are w1 and w3.
    const std::int64_t of_a_layer = executor == ExecutorKind::kEager ? 7 : 4;
    EXPECT_EQ(products_in_8_bits(program), 3 * of_a_layer * run.model.layers);
    std::set<std::pair<ValueId, std::string>> quantized;
    for (const Node& node : program.nodes) {
      if (node.op->name != "quantize") continue;
      const auto key =
          std::pair{node.inputs[0], fmt::format("{}", name_of(node.attrs.dtype("dtype")))};
      EXPECT_TRUE(quantized.insert(key).second) << "twice in one dtype";
    }
  }
  // A CPU runs the parts: there is nothing left that it has no kernel for.
  const Program program = step_program(step_of(ExecutorKind::kEager), DeviceTraits{});
  for (const Node& node : program.nodes) EXPECT_FALSE(node.op->only_on_gpus) << node.op->name;
}

}  // namespace
}  // namespace tracestep
