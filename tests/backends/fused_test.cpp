// Fused nodes against the same program op by op, on every back end: elementwise to the bit, rows
// within twice the error of the ops. A back end that has no kernel for them puts the ops back.
#include <gtest/gtest.h>

#include "nn/config.h"
#include "ops/functions.h"
#include "ops/scalar/functors.h"
#include "passes/kernel_passes.h"
#include "passes/pipeline.h"
#include "spec/step_program.h"
#include "support/backends.h"
#include "support/host_values.h"
#include "support/run_program.h"

namespace tracestep {
namespace {

using testing::run_program;
using testing::Tensors;
using testing::to_doubles;

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
#define NAME(op, Functor) #op,
constexpr const char* kOfOneOperand[] = {TRACESTEP_UNARY_OPS(NAME)};
constexpr const char* kOfTwoOperands[] = {TRACESTEP_BINARY_OPS(NAME)
                                              TRACESTEP_FLOATING_BINARY_OPS(NAME)};
#undef NAME

std::int64_t fused_nodes(const Program& program) {
  return std::ranges::count_if(program.nodes,
                               [](const Node& node) { return node.op->name == "fused"; });
}

class FusedTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ops::register_all(); }

  struct Both {
    Tensors fused, plain;
  };
  // `program` becomes `nodes` fused ones.
  static Both run_both(const Program& program, const Tensors& leaves, std::int64_t nodes = 1) {
    const Program joined = fuse(program);
    EXPECT_EQ(fused_nodes(joined), nodes) << program.name;
    const auto device = testing::backend_named(GetParam()).make({.threads = 2, .guarded = true});
    return {run_program(*device, joined, leaves), run_program(*device, program, leaves)};
  }

  static void expect_same_bits(const Program& program, double low = -2.0, double high = 2.0) {
    const Both both = run_both(program, testing::random_leaves(program, low, high));
    for (const auto& [name, value] : both.plain) {
      EXPECT_EQ(both.fused.at(name).bytes, value.bytes)
          << program.name << ", " << name << ": "
          << testing::max_difference(to_doubles(both.fused.at(name)), to_doubles(value));
    }
  }

  static void expect_twice_the_error_at_most(const Program& program) {
    const Tensors leaves = testing::random_leaves(program);
    const Both both = run_both(program, leaves);
    const Tensors answers = testing::reference_values(program, leaves);
    for (const auto& [name, answer] : answers) {
      const std::vector<double> exact = to_doubles(answer);
      const double plain = testing::max_difference(to_doubles(both.plain.at(name)), exact);
      const double fused = testing::max_difference(to_doubles(both.fused.at(name)), exact);
      const double rounding = testing::ulp(both.plain.at(name).dtype, testing::max_abs(exact));
      EXPECT_LE(fused, 2 * plain + rounding) << program.name << ", " << name;
    }
  }
};

// Sums behind products, which one kernel must not contract; functions; selection.
Program arithmetic(DType dtype, const Shape& shape) {
  Builder b(fmt::format("arithmetic {}{}", name_of(dtype), shape.str()));
  const Type type{dtype, shape};
  const Val x = b.input("x", type), y = b.input("y", type), z = b.input("z", type);
  const Val scalar = b.input("scalar", {dtype, {}});
  const Val product = ops::mul(x, y);
  const Val sum = ops::add(product, z);
  const Val difference = ops::sub(z, product);
  const Val line = ops::affine(ops::mul(sum, difference), 0.3, 0.7);
  const Val gated = ops::swiglu(line, ops::silu(product));
  const Val grads = b.call1("silu_grad", {gated, ops::unary("exp", sum)});
  const Val larger = ops::select(ops::binary("lt", x, y), grads, ops::unary("sigmoid", z));
  b.output("sum", sum);
  b.output("line", line);
  b.output("larger", ops::add(larger, scalar));
  b.output("wide", ops::cast(larger, DType::kF32));
  return b.finish();
}

TEST_P(FusedTest, ArithmeticIsEqualToTheBit) {
  for (DType dtype : kDTypes) {
    for (const Shape& shape : {Shape{64, 256}, Shape{7, 13}, Shape{1}, Shape{3, 1, 5, 6}}) {
      expect_same_bits(arithmetic(dtype, shape));
    }
  }
}

TEST_P(FusedTest, EveryFunctionIsEqualToTheBit) {
  for (DType dtype : kDTypes) {
    for (const char* op : kOfOneOperand) {
      Builder b(fmt::format("{} {}", op, name_of(dtype)));
      const Val x = b.input("x", {dtype, {33, 20}}), y = b.input("y", {dtype, {33, 20}});
      b.output("y", ops::unary(op, ops::mul(x, y)));
      expect_same_bits(b.finish(), 0.1, 2.0);
    }
    for (const char* op : kOfTwoOperands) {
      Builder b(fmt::format("{} {}", op, name_of(dtype)));
      const Val x = b.input("x", {dtype, {33, 20}}), y = b.input("y", {dtype, {33, 20}});
      b.output("y", ops::binary(op, ops::mul(x, y), ops::mul(y, y)));
      expect_same_bits(b.finish(), 0.1, 2.0);
    }
  }
}

TEST_P(FusedTest, BothResultsOfSwigluGradAreEqualToTheBit) {
  for (DType dtype : kDTypes) {
    Builder b(fmt::format("swiglu_grad {}", name_of(dtype)));
    const Type type{dtype, {9, 24}};
    const Val dy = ops::cast(b.input("dy", {DType::kF32, type.shape}), dtype);
    const Val gate = b.input("gate", type), up = b.input("up", type);
    const std::vector<Val> grads = b.call(find_op("swiglu_grad"), {dy, gate, up});
    b.output("gate", ops::cast(grads[0], DType::kF32));
    b.output("up", ops::cast(grads[1], DType::kF32));
    if (dtype != DType::kF32) expect_same_bits(b.finish());
  }
}

// Where all blocks are full, the text of a kernel names no size: calls of several sizes share one.
TEST_P(FusedTest, CallsOfOtherSizesWriteTheirOwnElementsAlone) {
  Builder b("sizes");
  for (const std::int64_t rows : {64, 8, 32}) {
    const Val x = b.input(fmt::format("x{}", rows), {DType::kBF16, {rows, 4096}});
    b.output(fmt::format("y{}", rows), ops::cast(ops::unary("neg", ops::mul(x, x)), DType::kF32));
  }
  const Program program = b.finish();
  const Tensors leaves = testing::random_leaves(program);
  const Both both = run_both(program, leaves, 3);
  for (const auto& [name, value] : both.plain) {
    EXPECT_EQ(both.fused.at(name).bytes, value.bytes) << name;
  }
}

// Transposed, sliced (and so unaligned), repeated, and a result in its reader's order.
TEST_P(FusedTest, OperandsMayLieAnyhow) {
  for (DType dtype : kDTypes) {
    Builder b(fmt::format("strides {}", name_of(dtype)));
    const Val x = ops::permute(b.input("x", {dtype, {24, 10}}), {1, 0});
    const Val y = ops::slice(b.input("y", {dtype, {10, 27}}), 1, 3, 27);
    const Val row = ops::broadcast_to(b.input("row", {dtype, {24}}), {10, 24});
    const Val column = ops::broadcast_to(b.input("column", {dtype, {10, 1}}), {10, 24});
    const Val sum = ops::add(ops::mul(x, y), ops::mul(row, column));
    b.output("y", ops::unary("neg", sum));
    expect_same_bits(b.finish());
  }
}

TEST_P(FusedTest, AResultInItsReadersOrderIsTheSame) {
  Builder b("order");
  const Val x = b.input("x", {DType::kBF16, {2, 3, 4, 8}});
  const Val y = ops::unary("neg", ops::cast(x, DType::kF32));
  const Val rows = ops::reshape(ops::permute(y, {0, 2, 1, 3}), {8, 24});
  b.output("y", ops::matmul(rows, b.input("w", {DType::kF32, {24, 5}})));
  expect_same_bits(b.finish());
}

TEST_P(FusedTest, RotationsAgree) {
  for (DType dtype : kDTypes) {
    for (int i = 0; i < 6; ++i) {
      const std::int64_t width = std::array{2, 6, 64}[static_cast<std::size_t>(i % 3)];
      const bool halves = i >= 3;
      Builder b(fmt::format("rotation {} {} {}", name_of(dtype), width, halves));
      const ops::RopeTable table = ops::rope_table(b, 5, width, {});
      for (const char* name : {"q", "k"}) {
        const Val x = ops::permute(b.input(name, {dtype, {2, 5, 3, width}}), {0, 2, 1, 3});
        b.output(name, b.call1("rope", {ops::unary("neg", x), table.cos, table.sin},
                               {{"inverse", name[0] == 'k'}, {"halves", halves}}));
      }
      expect_twice_the_error_at_most(b.finish());
    }
  }
}

// As behind an adapter: part of a product of q, k and v, and what is added to it.
TEST_P(FusedTest, RotationsOfSumsAgree) {
  for (DType dtype : kDTypes) {
    for (const std::int64_t width : {2, 6, 64, 128}) {
      Builder b(fmt::format("rotation of a sum {} {}", name_of(dtype), width));
      const ops::RopeTable table = ops::rope_table(b, 5, width, {});
      const Val joined = b.input("joined", {dtype, {10, 5 * width}});
      const Val part = ops::slice(joined, 1, width, 4 * width);
      const Val sum = ops::add(part, b.input("adapter", {dtype, {10, 3 * width}}));
      const Val heads = ops::permute(ops::reshape(sum, {2, 5, 3, width}), {0, 2, 1, 3});
      const Val x = ops::cast(heads, DType::kF32);
      b.output("y", ops::cast(b.call1("rope", {x, table.cos, table.sin}), dtype));
      expect_twice_the_error_at_most(b.finish());
    }
  }
}

TEST_P(FusedTest, PartsOfAnAssemblyAreEqualToTheBit) {
  for (DType dtype : kDTypes) {
    Builder b(fmt::format("parts {}", name_of(dtype)));
    const Val x = ops::affine(b.input("x", {dtype, {33, 16}}), 2.0);
    const Val y = ops::affine(b.input("y", {dtype, {33, 5}}), 3.0);
    b.output("all", b.call1("assemble", {x, y}, {{"axis", std::int64_t{1}}}));
    const Program program = b.finish();
    const Both both = run_both(program, testing::random_leaves(program), 2);
    EXPECT_EQ(both.fused.at("all").bytes, both.plain.at("all").bytes);
  }
}

Program residual_norm(DType dtype, const Shape& shape) {
  Builder b(fmt::format("residual norm {}{}", name_of(dtype), shape.str()));
  const Val h = ops::cast(b.input("h", {dtype, shape}), DType::kF32);
  const Val x = ops::add(b.input("x", {DType::kF32, shape}), h);
  const Val w = b.parameter("w", {DType::kF32, {shape.back()}});
  const std::vector<Val> normed = b.call(find_op("rms_norm"), {x, w});
  b.output("residual", x);
  b.output("rstd", normed[1]);
  b.output(
      "normed",
      ops::cast(ops::reshape(normed[0], {shape.product() / shape.back(), shape.back()}), dtype));
  return b.finish();
}

TEST_P(FusedTest, NormsOfAnyWidthAgree) {
  for (DType dtype : kDTypes) {
    for (const Shape& shape : {Shape{2, 3, 8}, Shape{5, 33}, Shape{9, 100}, Shape{4, 128},
                               Shape{3, 768}, Shape{2, 1600}, Shape{3, 4099}, Shape{2, 8192}}) {
      expect_twice_the_error_at_most(residual_norm(dtype, shape));
    }
  }
}

TEST_P(FusedTest, RowsWithSeveralSumsAgree) {
  for (std::int64_t width : {7, 64, 300}) {
    Builder b(fmt::format("rows {}", width));
    const Type type{DType::kF32, {11, width}};
    const Val x = ops::mul(b.input("x", type), b.input("y", type));
    const Val y = ops::softmax(x, {.scale = 0.5});
    const Val dx = b.call1("softmax_grad",
                           {ops::cast(b.input("dy", {DType::kBF16, type.shape}), DType::kF32), y});
    b.output("y", y);
    b.output("dx", ops::cast(dx, DType::kBF16));
    b.output("lse", ops::log_sum_exp(x));
    expect_twice_the_error_at_most(b.finish());
  }
}

TEST_P(FusedTest, GradientsOfNormsAgree) {
  for (const Shape& shape :
       {Shape{512, 8}, Shape{2, 256, 36}, Shape{512, 33}, Shape{1024, 300}, Shape{8192, 16}}) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      Builder b(fmt::format("norm gradient {}{}", name_of(dtype), shape.str()));
      const Type type{DType::kF32, shape};
      const Val dy = ops::cast(b.input("dy", {DType::kBF16, shape}), DType::kF32);
      const Shape rows(std::span(shape.begin(), static_cast<std::size_t>(shape.rank() - 1)));
      const std::vector<Val> grads =
          b.call(find_op("rms_norm_grad"),
                 {dy, b.input("x", type), b.parameter("w", {dtype, {shape.back()}}),
                  b.input("rstd", {DType::kF32, rows})});
      const Val sum = ops::add(grads[0], b.input("g", type));
      b.output("dw", grads[1]);
      b.output("dx", sum);
      const Val low = ops::cast(sum, DType::kBF16);
      Dims all_rows;
      for (int i = 0; i + 1 < shape.rank(); ++i) all_rows.push_back(i);
      b.output("low", low);
      b.output("db", b.call1("sum", {low}, {{"axes", all_rows}, {"wide", true}}));
      expect_twice_the_error_at_most(b.finish());
    }
  }
}

TEST_P(FusedTest, GradientsOfBiasesAgree) {
  for (const Shape& shape : {Shape{2048, 8}, Shape{2048, 1100}, Shape{2, 4096, 33}}) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      Builder b(fmt::format("bias gradient {}{}", name_of(dtype), shape.str()));
      const Val dy = ops::cast(b.input("dy", {DType::kBF16, shape}), DType::kF32);
      const Val dx = b.call1("gelu_grad", {dy, b.input("x", {DType::kF32, shape})});
      Dims rows;
      for (int i = 0; i + 1 < shape.rank(); ++i) rows.push_back(i);
      const Val low = ops::cast(dx, dtype);
      b.output("dx", low);
      b.output("db", b.call1("sum", {low}, {{"axes", rows}, {"wide", true}}));
      expect_twice_the_error_at_most(b.finish());
    }
  }
}

// A whole forward and backward pass: loss and gradients.
TEST_P(FusedTest, AStepOfTinyAgreesInEveryGradient) {
  for (const char* precision : {"fp32", "bf16"}) {
    RunSpec spec;
    spec.model = preset("tiny");
    spec.precision = parse_precision("test", precision);
    spec.shape = {2, 16};
    spec.mode = Mode::kForwardBackward;
    spec.attention = AttentionForm::kFlash;
    spec.executor = ExecutorKind::kCompiled;
    const PassContext context{.has_kernel = [](const OpDef& op) {
      return !op.is_view() && (op.name == "fused" || !op.always_decompose);
    }};
    const Program fused = run_pipeline(forward_program(spec), spec, context).program;
    spec.compile_passes.emplace();
    const Program plain = run_pipeline(forward_program(spec), spec, context).program;
    ASSERT_GT(fused_nodes(fused), 0);
    const Tensors leaves = testing::random_leaves(plain, -0.1, 0.1);
    const auto device = testing::backend_named(GetParam()).make({.threads = 2});
    const Tensors expected = run_program(*device, plain, leaves);
    const Tensors found = run_program(*device, fused, leaves);
    const double bound = spec.precision.autocast ? 0.02 : 1e-5;
    for (const auto& [name, value] : expected) {
      const std::vector<double> a = to_doubles(found.at(name)), b = to_doubles(value);
      EXPECT_LE(testing::max_difference(a, b), bound * std::max(testing::max_abs(b), 1e-3)) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, FusedTest, ::testing::ValuesIn(testing::backend_names()));

}  // namespace
}  // namespace tracestep
