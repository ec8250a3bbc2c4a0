// Which products run in 8 bits, what they read, and what that makes of a step.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ir/parse.h"
#include "ir/print.h"
#include "ops/functions.h"
#include "passes/form_passes.h"
#include "passes/parallel_passes.h"
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

// Each rank quantizes its part, once, and backward gathers codes again.
TEST(QuantizeTest, WeightsInPartsAreQuantizedBeforeTheyAreGathered) {
  ops::register_all();
  const Program program = parse_program(R"(program "p" {
  input %x : bf16[32,48]
  input %g : bf16[32,64]
  state %w : bf16[1536] !weight_cast
  %0 : bf16[64,48] !weight_cast = all_gather(%w) {ranks=2, shape=[64,48]} @ layers.0.ffn.w1 communication
  %1 : bf16[32,64] = matmul(%x, %0) {transpose_b=true} @ layers.0.ffn.w1 forward
  %2 : bf16[32,48] = matmul(%g, %0) @ layers.0.ffn.w1 backward
  output "y" = %1
  output "dx" = %2
})");
  const QuantizeOptions options{
      .products = Float8Products::kAll, .scaling = Float8Scaling::kDelayed, .ranks = 2};
  EXPECT_EQ(print(regather(quantize(program, options, yes))), R"(program "p" {
  input %x : bf16[32,48]
  input %g : bf16[32,64]
  state %w : bf16[1536] !weight_cast
  state %fp8.largest : f32[3]
  %0 : f32[1] !weight_cast = largest_magnitudes(%w) #1 @ layers.0.ffn.w1 forward by quantize
  %1 : f32[2,1] !weight_cast = all_gather(%0) {ranks=2, shape=[2,1]} @ fp8 communication by quantize
  %2 : f32[1] !weight_cast = max(%1) {axes=[0]} #1 @ layers.0.ffn.w1 forward by quantize
  %3 : f32[1] = slice(%fp8.largest) {axis=0, start=1, stop=2} @ . forward
  %4, %5, %6 : f8e4m3[1536] !weight_cast, f32[] !weight_cast, f32[1] !weight_cast = quantize_parts(%2, %w, %3) {dtype=f8e4m3, largest=448.0, room=8.0} #1 @ layers.0.ffn.w1 forward by quantize
  %7 : f8e4m3[64,48] !weight_cast = all_gather(%4) {ranks=2, shape=[64,48]} @ layers.0.ffn.w1 communication by quantize
  %8 : f32[1] = slice(%fp8.largest) {axis=0, start=0, stop=1} @ layers.0.ffn.w1 forward by quantize
  %9, %10, %11, %12 : f8e4m3[32,48], f8e4m3[48,32], f32[], f32[1] = quantize_delayed(%x, %8) {dtype=f8e4m3, largest=448.0, room=8.0} @ layers.0.ffn.w1 forward by quantize
  %13 : bf16[32,64] = scaled_matmul(%9, %7, %11, %5) {dtype=bf16} @ layers.0.ffn.w1 forward by quantize
  %14 : f32[1] = slice(%fp8.largest) {axis=0, start=2, stop=3} @ layers.0.ffn.w1 backward by quantize
  %15, %16, %17, %18 : f8e5m2[32,64], f8e5m2[64,32], f32[], f32[1] = quantize_delayed(%g, %14) {dtype=f8e5m2, largest=57344.0, room=64.0} @ layers.0.ffn.w1 backward by quantize
  %19 : f8e4m3[64,48] !weight_cast = all_gather(%4) {ranks=2, shape=[64,48]} #1 @ layers.0.ffn.w1 communication by regather
  %20 : f8e4m3[48,64] !weight_cast = transpose_codes(%19) @ layers.0.ffn.w1 backward by quantize
  %21 : bf16[32,48] = scaled_matmul(%15, %20, %17, %5) {dtype=bf16} @ layers.0.ffn.w1 backward by quantize
  %22 : f32[3] = assemble(%12, %6, %18) {axis=0} @ fp8 communication
  %23 : f32[2,3] = all_gather(%22) {ranks=2, shape=[2,3]} @ fp8 communication
  %24 : f32[3] = max(%23) {axes=[0]} @ fp8 optimizer
  update %fp8.largest = %24
  output "y" = %13
  output "dx" = %21
}
)");
}

std::int64_t products_in_8_bits(const Program& program) {
  return std::ranges::count_if(program.nodes,
                               [](const Node& node) { return node.op->name == "scaled_matmul"; });
}

TEST(QuantizeTest, OnlyLayersAndSizesThatFitAreRewritten) {
  const auto count = [](const Program& program, Float8Products products) {
    return products_in_8_bits(
        quantize(program, {.products = products, .may_have_none = true}, yes));
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

// Devices with kernels and devices that run the parts give the same numbers.
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

TEST(QuantizeTest, ScalesOfTheStepBeforeAreTakenWhereTheyFit) {
  using namespace testing;
  const Program plain = layer(64, 48, 80, "layers.0.ffn.w1");
  const Program current = quantize(plain, {.products = Float8Products::kAll}, yes);
  Program delayed =
      quantize(plain, {.products = Float8Products::kAll, .scaling = Float8Scaling::kDelayed}, yes);
  ASSERT_EQ(delayed.updates.size(), 1u);
  delayed.outputs.push_back({"largest", delayed.updates[0].value});
  const Tensors leaves = random_leaves(plain);
  std::vector<float> found;  // in the order of the program
  for (const char* name : {"x", "w", "g"}) {
    found.push_back(static_cast<float>(max_abs(to_doubles(leaves.at(name)))));
  }
  const auto with_last = [&](std::vector<float> last) {
    Tensors out = leaves;
    out[std::string(kLargestMagnitudes)] = HostTensor::of<float>(DType::kF32, {3}, last);
    return out;
  };
  const auto scaled = [&](float by) {
    std::vector<float> out = found;
    for (float& x : out) x *= by;
    return out;
  };
  for (const Backend& backend : backends_under_test()) {
    const auto device = backend.make({.threads = 2, .guarded = true});
    const Tensors now = run_program(*device, current, leaves);
    const auto answer_to = [&](float by) {
      Tensors out = run_program(*device, delayed, with_last(scaled(by)));
      EXPECT_EQ(out.at("largest").as<float>()[0], found[0]) << backend.name;
      EXPECT_EQ(out.at("largest").as<float>()[1], found[1]) << backend.name;
      EXPECT_EQ(out.at("largest").as<float>()[2], found[2]) << backend.name;
      return out;
    };
    // A largest magnitude that is unknown, outgrown, or far too large gives current scales. An
    // eighth, or a 64th for gradients, leaves room for all of it; at 0.75, codes are others.
    for (const float by : {0.0f, 0.12f, 9.0f, 0.125f}) {
      EXPECT_EQ(answer_to(by).at("y").bytes, now.at("y").bytes) << backend.name << " " << by;
    }
    EXPECT_NE(answer_to(0.75f).at("y").bytes, now.at("y").bytes) << backend.name;
    EXPECT_LT(max_difference(to_doubles(answer_to(0.75f).at("y")), to_doubles(now.at("y"))),
              0.2 * 4 * 48)
        << backend.name;
  }
}

// The feed-forward part of a layer, t tokens, w1 and w3 as one product; `also`: what else is
// output.
Program feed_forward(std::int64_t t, const std::string& also = "") {
  ops::register_all();
  return parse_program(fmt::format(R"(program "p" {{
  input %x : bf16[{0},32]
  input %g : bf16[{0},32]
  state %w13 : bf16[160,32] !weight_cast
  state %w2 : bf16[32,80] !weight_cast
  %0 : bf16[{0},160] = matmul(%x, %w13) {{transpose_b=true}} @ layers.0.ffn.w1 forward
  %1 : bf16[{0},80] = slice(%0) {{axis=1, start=0, stop=80}} @ layers.0.ffn.w1 forward
  %2 : bf16[{0},80] = slice(%0) {{axis=1, start=80, stop=160}} @ layers.0.ffn.w3 forward
  %3 : bf16[{0},80] = swiglu(%1, %2) @ layers.0.ffn.swiglu forward
  %4 : bf16[{0},32] = matmul(%3, %w2) {{transpose_b=true}} @ layers.0.ffn.w2 forward
  %5 : bf16[{0},80] = matmul(%g, %w2) @ layers.0.ffn.w2 backward
  %6 : bf16[32,80] !gradient = matmul(%g, %3) {{transpose_a=true}} @ layers.0.ffn.w2 backward
  %7, %8 : bf16[{0},80], bf16[{0},80] = swiglu_grad(%5, %1, %2) @ layers.0.ffn.swiglu backward
  %9 : bf16[{0},160] = assemble(%7, %8) {{axis=1}} @ layers.0.ffn.w1 backward
  %10 : bf16[{0},32] = matmul(%9, %w13) @ layers.0.ffn.w1 backward
  %11 : bf16[160,32] !gradient = matmul(%9, %x) {{transpose_a=true}} @ layers.0.ffn.w1 backward
  output "y" = %4
  output "dx" = %10
  output "dw13" = %11
  output "dw2" = %6{1}
}})",
                                   t, also));
}

TEST(QuantizeTest, SwigluWritesCodesWhereNothingElseReadsIt) {
  using namespace testing;
  const auto count = [](const Program& program, std::string_view op) {
    return std::ranges::count(program.nodes, op, [](const Node& n) { return n.op->name; });
  };
  const QuantizeOptions options{.products = Float8Products::kAll,
                                .scaling = Float8Scaling::kDelayed};
  const Program program = quantize(feed_forward(48), options, yes);
  for (const char* op : {"swiglu", "swiglu_grad", "assemble"}) {
    EXPECT_EQ(count(program, op), op == std::string("assemble") ? 1 : 0) << op;  // magnitudes
  }
  EXPECT_EQ(count(program, "swiglu_quantized"), 1);
  EXPECT_EQ(count(program, "swiglu_grad_quantized"), 1);
  const Program read =
      quantize(feed_forward(48, "\n  output \"h\" = %3\n  output \"dup\" = %8"), options, yes);
  EXPECT_EQ(count(read, "quantize_delayed"), 6);

  const Program apart =
      decompose(program, [](const OpDef& op) { return op.name.ends_with("_quantized"); });
  EXPECT_EQ(count(apart, "quantize_delayed"), 6);
  Tensors leaves = random_leaves(feed_forward(48));
  const std::vector<float> last{2.0f, 0.0f, 1.0f, 1.0f, 300.0f, 2.0f};
  leaves[std::string(kLargestMagnitudes)] = HostTensor::of<float>(DType::kF32, {6}, last);
  for (const Backend& backend : backends_under_test()) {
    const auto device = backend.make({.threads = 2, .guarded = true});
    const Tensors found = run_program(*device, program, leaves),
                  expected = run_program(*device, apart, leaves);
    for (const auto& [name, tensor] : found) {
      if (!device->has_kernel(find_op("swiglu_quantized"))) {
        EXPECT_EQ(tensor.bytes, expected.at(name).bytes) << backend.name << " " << name;
      }
      // A GPU's faster sigmoid moves few elements to the code beside theirs.
      const std::vector<double> answer = to_doubles(expected.at(name));
      EXPECT_LT(max_difference(to_doubles(tensor), answer), 0.02 * max_abs(answer))
          << backend.name << " " << name;
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
    const auto last = program.find_leaf(kLargestMagnitudes);
    ASSERT_NE(last, kNoValue);
    // q, k and v are one product where programs are compiled, and so are w1 and w3.
    const std::int64_t of_a_layer = executor == ExecutorKind::kEager ? 7 : 4;
    EXPECT_EQ(products_in_8_bits(program), 3 * of_a_layer * run.model.layers);
    std::set<std::pair<ValueId, std::string>> quantized;
    for (const Node& node : program.nodes) {
      for (std::size_t i = 1; node.op->name == "refresh_codes" && i < node.inputs.size(); i += 4) {
        EXPECT_TRUE(quantized.emplace(node.inputs[i], "f8e4m3").second) << "twice";
      }
      if (node.op->name.find("quantize") == std::string::npos) continue;
      const auto key =
          std::pair{node.inputs[0], fmt::format("{}", name_of(node.attrs.dtype("dtype")))};
      EXPECT_TRUE(quantized.insert(key).second) << "twice in one dtype";
    }
    EXPECT_EQ(program.type(last).count(), static_cast<std::int64_t>(quantized.size()));
  }
  // A CPU runs the parts: there is nothing left that it has no kernel for.
  const Program program = step_program(step_of(ExecutorKind::kEager), DeviceTraits{});
  for (const Node& node : program.nodes) EXPECT_FALSE(node.op->only_on_gpus) << node.op->name;
}

}  // namespace
}  // namespace tracestep
