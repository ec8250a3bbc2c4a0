// Tests pass `gate` on products around SwiGLU, as text and in numbers.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "nn/transformer.h"
#include "ops/functions.h"
#include "passes/kernel_passes.h"
#include "passes/pipeline.h"
#include "support/backends.h"
#include "support/host_values.h"
#include "support/run_program.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Tensors;

constexpr auto kHasAll = [](const OpDef&) { return true; };
constexpr auto kAlways = [](const GatedProductSizes&) { return true; };

class GateTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static std::string text_of(const std::string& text) {
    const Program out = gate(parse_program(text), kHasAll, kAlways);
    verify(out);
    return print(out, {.origins = false});
  }
};

// --- forward ------------------------------------------------------------------------------------
constexpr const char* kHalves = R"(program "p" {
    input %x : bf16[6,4]
    parameter %w : bf16[10,4]
    %0 : bf16[6,10] = matmul(%x, %w) {transpose_b=true}
    %1 : bf16[6,5] = slice(%0) {axis=1, start=0, stop=5}
    %2 : bf16[6,5] = slice(%0) {axis=1, start=5, stop=10}
    )";

TEST_F(GateTest, OtherReadersOfTheHalvesReadThemStill) {
  EXPECT_EQ(text_of(std::string(kHalves) + R"(
    %3 : bf16[2,3,5] = reshape(%1) {shape=[2,3,5]}
    %4 : bf16[2,3,5] = reshape(%2) {shape=[2,3,5]}
    %5 : bf16[2,3,5] = swiglu(%3, %4)
    %6 : bf16[6,5] = exp(%1)
    output "h" = %5
    output "e" = %6 })"),
            R"(program "p" {
  input %x : bf16[6,4]
  parameter %w : bf16[10,4]
  %0, %1 : bf16[6,10], bf16[6,5] = matmul_swiglu(%x, %w)
  %2 : bf16[2,3,5] = reshape(%1) {shape=[2,3,5]}
  %3 : bf16[6,5] = slice(%0) {axis=1, start=0, stop=5}
  %4 : bf16[6,5] = exp(%3)
  output "h" = %2
  output "e" = %4
}
)");
}

TEST_F(GateTest, GatesThatNobodyElseReadsAreSaidToBeUnread) {
  EXPECT_EQ(text_of(std::string(kHalves) + R"(
    %3 : bf16[2,3,5] = reshape(%1) {shape=[2,3,5]}
    %4 : bf16[2,3,5] = reshape(%2) {shape=[2,3,5]}
    %5 : bf16[2,3,5] = swiglu(%3, %4)
    output "h" = %5 })"),
            R"(program "p" {
  input %x : bf16[6,4]
  parameter %w : bf16[10,4]
  %0, %1 : bf16[6,10], bf16[6,5] = matmul_swiglu(%x, %w) {unread=true}
  %2 : bf16[2,3,5] = reshape(%1) {shape=[2,3,5]}
  output "h" = %2
}
)");
}

// The second one would need a product of its own.
TEST_F(GateTest, OfTwoSwiglusOfAProductTheFirstIsTaken) {
  const std::string text = text_of(std::string(kHalves) + R"(
    %3 : bf16[6,5] = swiglu(%1, %2) @ ffn forward
    %4 : bf16[6,5] = swiglu(%1, %2) #1 @ ffn recompute
    output "h" = %3
    output "again" = %4 })");
  EXPECT_THAT(text, HasSubstr("matmul_swiglu(%x, %w)"));
  EXPECT_THAT(text, HasSubstr(" = swiglu("));
}

TEST_F(GateTest, WhatIsNoProductOfGatesAndTheirPartnersStays) {
  for (const char* rest : {
           "%3 : bf16[6,5] = swiglu(%2, %1)\n output \"h\" = %3 }",  // gates behind
           "%3 : bf16[6,5] = mul(%1, %2)\n output \"h\" = %3 }",
       }) {
    EXPECT_THAT(text_of(std::string(kHalves) + rest), Not(HasSubstr("matmul_swiglu"))) << rest;
  }
  // float32, and operands that a kernel would have to copy.
  EXPECT_THAT(text_of(R"(program "p" {
    input %x : f32[6,4]
    input %y : bf16[4,6]
    parameter %w : f32[10,4]
    parameter %v : bf16[10,4]
    %0 : f32[6,10] = matmul(%x, %w) {transpose_b=true}
    %1 : f32[6,5] = slice(%0) {axis=1, start=0, stop=5}
    %2 : f32[6,5] = slice(%0) {axis=1, start=5, stop=10}
    %3 : f32[6,5] = swiglu(%1, %2)
    %4 : bf16[6,4] = permute(%y) {axes=[1,0]}
    %5 : bf16[6,10] = matmul(%4, %v) {transpose_b=true}
    %6 : bf16[6,5] = slice(%5) {axis=1, start=0, stop=5}
    %7 : bf16[6,5] = slice(%5) {axis=1, start=5, stop=10}
    %8 : bf16[6,5] = swiglu(%6, %7)
    output "h" = %3
    output "g" = %8 })"),
              Not(HasSubstr("matmul_swiglu")));
}

TEST_F(GateTest, NothingChangesWhereItDoesNotPayOrHasNoKernel) {
  const Program plain =
      parse_program(std::string(kHalves) + "%3 : bf16[6,5] = swiglu(%1, %2)\n output \"h\" = %3 }");
  const auto never = [](const GatedProductSizes& sizes) {
    EXPECT_EQ(sizes.rows, 6);
    EXPECT_EQ(sizes.width, 4);
    EXPECT_EQ(sizes.columns, 5);
    return false;
  };
  EXPECT_EQ(gate(plain, kHasAll, never), plain);
  EXPECT_EQ(gate(
                plain, [](const OpDef& op) { return op.name != "matmul_swiglu_grad"; }, kAlways),
            plain);
}

// --- backward -----------------------------------------------------------------------------------
std::string backward(const char* rest) {
  return std::string(R"(program "p" {
    input %dy : bf16[6,4]
    input %gates : bf16[6,10]
    parameter %w : bf16[4,5]
    %0 : bf16[6,5] = matmul(%dy, %w)
    %1 : bf16[2,3,5] = reshape(%0) {shape=[2,3,5]}
    %2 : bf16[6,5] = slice(%gates) {axis=1, start=0, stop=5}
    %3 : bf16[6,5] = slice(%gates) {axis=1, start=5, stop=10}
    %4 : bf16[2,3,5] = reshape(%2) {shape=[2,3,5]}
    %5 : bf16[2,3,5] = reshape(%3) {shape=[2,3,5]}
    )") + rest;
}
constexpr const char* kGradients = R"(
    %6, %7 : bf16[2,3,5], bf16[2,3,5] = swiglu_grad(%1, %4, %5)
    %8 : bf16[6,5] = reshape(%6) {shape=[6,5]}
    %9 : bf16[6,5] = reshape(%7) {shape=[6,5]}
    %10 : bf16[6,10] = assemble(%8, %9) {axis=1}
    output "dg" = %10
    )";

TEST_F(GateTest, GradientsThatMeetAreWrittenByTheProduct) {
  EXPECT_EQ(text_of(backward(kGradients) + "}"), R"(program "p" {
  input %dy : bf16[6,4]
  input %gates : bf16[6,10]
  parameter %w : bf16[4,5]
  %0 : bf16[6,10] = matmul_swiglu_grad(%dy, %w, %gates)
  output "dg" = %0
}
)");
}

TEST_F(GateTest, AGradientThatIsReadTwiceIsMadeByAProductOfItsOwn) {
  EXPECT_THAT(text_of(backward(kGradients) + "output \"dh\" = %0 }"),
              Not(HasSubstr("matmul_swiglu_grad")));
  EXPECT_THAT(text_of(backward(kGradients) + "%11 : bf16[6,5] = exp(%0)\noutput \"e\" = %11 }"),
              Not(HasSubstr("matmul_swiglu_grad")));
  EXPECT_THAT(text_of(backward(kGradients) + "%11 : bf16[6,5] = exp(%8)\noutput \"e\" = %11 }"),
              Not(HasSubstr("matmul_swiglu_grad")));
}

// Where the gradients of SwiGLU stood, the product would read the new weights.
TEST_F(GateTest, AProductStaysBeforeTheUpdateOfItsWeights) {
  EXPECT_THAT(text_of(backward((std::string("%11 : bf16[4,5] = exp(%w)\n") + kGradients).c_str()) +
                      "update %w = %11 }"),
              Not(HasSubstr("matmul_swiglu_grad")));
}

// --- whole steps --------------------------------------------------------------------------------
class GatedPrograms {
 protected:
  // Rows, widths and columns that our kernels take.
  static Program made(Mode mode, DType dtype, const Device& device,
                      const Recomputation& recompute = {}) {
    const ModelConfig model{.vocab = 19, .d_model = 64, .d_ff = 128, .layers = 2, .heads = 2};
    const BatchShape shape{.batch = 2, .context = 128};
    RunSpec run{.precision = {.autocast = dtype}, .verify = true};
    run.mode = mode;
    run.executor = ExecutorKind::kArena;
    run.recompute = recompute;
    const PassContext context{.traits = device.traits(),
                              .has_kernel = [&](const OpDef& op) { return device.has_kernel(op); },
                              .disabled = {"gate", "fuse"},
                              .stop_after = "epilogue"};
    const bool has_loss = mode != Mode::kInference;
    return run_pipeline(has_loss ? loss_program(model, shape) : logits_program(model, shape), run,
                        context)
        .program;
  }

  // Both programs have the same results; on a GPU a library may add up in another order.
  static void expect_same(Device& device, const Program& plain, const Program& program) {
    const Tensors leaves = testing::random_leaves(plain, 0.0, 0.5);
    const Tensors expected = testing::run_program(device, plain, leaves);
    for (const auto& [name, value] : testing::run_program(device, program, leaves)) {
      if (device.traits().kind == DeviceKind::kCuda) {
        const std::vector<double> plain_values = testing::to_doubles(expected.at(name));
        EXPECT_LE(testing::max_difference(testing::to_doubles(value), plain_values),
                  0x1p-6 * testing::max_abs(plain_values))
            << name;
      } else {
        EXPECT_TRUE(value.bytes == expected.at(name).bytes) << name;
      }
    }
  }
};

class GateStepTest : public GatedPrograms, public ::testing::TestWithParam<Recomputation> {
 protected:
  void SetUp() override { ops::register_all(); }
};
class GateInferenceTest : public GatedPrograms, public GateTest {};

std::ptrdiff_t count_of(const Program& program, std::string_view op) {
  return std::ranges::count_if(program.nodes, [&](const Node& n) { return n.op->name == op; });
}

TEST_P(GateStepTest, ItHasTheSameBits) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    SCOPED_TRACE(backend.name);
    const auto device = backend.make({.threads = 2, .guarded = true});
    const Program plain = made(Mode::kStep, DType::kBF16, *device, GetParam()),
                  program = gate(plain, kHasAll, kAlways);
    verify(program);
    EXPECT_EQ(count_of(program, "matmul_swiglu"),
              count_of(plain, "swiglu") - count_of(program, "swiglu"));
    EXPECT_GE(count_of(program, "matmul_swiglu"), 2);
    EXPECT_EQ(count_of(program, "matmul_swiglu_grad"), 2);
    EXPECT_EQ(count_of(program, "swiglu_grad"), 0);
    expect_same(*device, plain, program);
  }
}

// No gates are stored, and float16 has the same kernels.
TEST_F(GateInferenceTest, ItHasTheSameBits) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    SCOPED_TRACE(backend.name);
    const auto device = backend.make({.threads = 2, .guarded = true});
    const Program plain = made(Mode::kInference, DType::kF16, *device),
                  program = gate(plain, kHasAll, kAlways);
    verify(program);
    EXPECT_EQ(count_of(program, "matmul_swiglu"), 2);
    for (const Node& n : program.nodes) {
      if (n.op->name == "matmul_swiglu") {
        EXPECT_TRUE(n.attrs.flag("unread"));
      }
    }
    expect_same(*device, plain, program);
  }
}

INSTANTIATE_TEST_SUITE_P(Recomputed, GateStepTest,
                         ::testing::Values(Recomputation(), Recomputation::blocks()));

// --- what pays ----------------------------------------------------------------------------------
TEST(GatedProductTest, ItPaysFromAThousandRowsOn) {
  const auto pays = [](std::int64_t rows, std::int64_t width, std::int64_t columns) {
    return gated_product_pays({rows, width, columns});
  };
  EXPECT_TRUE(pays(4096, 1024, 4096));
  EXPECT_TRUE(pays(2048, 1280, 5120));
  EXPECT_TRUE(pays(2048, 512, 2048));
  EXPECT_FALSE(pays(1024, 768, 3072));
  EXPECT_FALSE(pays(512, 4096, 14336));
  EXPECT_FALSE(pays(4096, 1024, 512));  // few tiles
  EXPECT_FALSE(pays(4096, 1000, 4096));
  EXPECT_FALSE(pays(4096, 1024, 2720));
  EXPECT_FALSE(pays(3 * 777, 1024, 4096));
  EXPECT_FALSE(takes_gated_product({0, 64, 128}));
}

}  // namespace
}  // namespace tracestep
