// Tests pass `narrow` on gradients that go back through casts, as text and in numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "analysis/cost.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "nn/transformer.h"
#include "ops/functions.h"
#include "passes/kernel_passes.h"
#include "passes/memory_passes.h"
#include "passes/pipeline.h"
#include "support/backends.h"
#include "support/host_values.h"
#include "support/run_program.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using testing::Tensors;

class NarrowTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static std::string narrowed(const std::string& text) {
    const Program out = narrow(parse_program(text));
    verify(out);
    verify(materialize(out), VerifyStage::kMaterialized);
    return print(out, {.origins = false});
  }
};

// The gradient of v on its way from attention to the product that made v, and its bias.
constexpr const char* kBack = R"(program "p" {
  input %x : bf16[3,2,4,5]
  input %w : bf16[6,10]
  %0 : bf16[3,4,2,5] = permute(%x) {axes=[0,2,1,3]} @ attn backward
  %1 : f32[3,4,2,5] = cast(%0) {dtype=f32} @ attn backward
  %2 : f32[3,2,4,5] = permute(%1) {axes=[0,2,1,3]} @ attn backward
  %3 : f32[6,20] = reshape(%2) {shape=[6,20]} @ attn backward
  %4 : bf16[6,20] = cast(%3) {dtype=bf16} @ v backward
  %5 : f32[20] !gradient = sum(%3) {axes=[0]} @ v backward
  %6 : bf16[10,20] = matmul(%w, %4) {transpose_a=true} @ v backward
  output "dw" = %6
  output "db" = %5
})";

TEST_F(NarrowTest, WhatWasWidenedIsReadAsItWasAndPermutationsCancel) {
  EXPECT_EQ(narrowed(kBack), R"(program "p" {
  input %x : bf16[3,2,4,5]
  input %w : bf16[6,10]
  %0 : bf16[6,20] = reshape(%x) {shape=[6,20]}
  %1 : f32[20] !gradient = sum(%0) {axes=[0], wide=true}
  %2 : bf16[10,20] = matmul(%w, %0) {transpose_a=true}
  output "dw" = %2
  output "db" = %1
}
)");
}

// A product's bias under autocast: terms are narrow, and the sum stays as it was accumulated.
TEST_F(NarrowTest, ASumOfNarrowTermsIsNotRoundedBeforeItIsWidened) {
  EXPECT_EQ(narrowed(R"(program "p" {
  input %g : bf16[6,20]
  %0 : bf16[20] = sum(%g) {axes=[0]} @ w1 backward
  %1 : f32[20] !gradient = cast(%0) {dtype=f32} @ w1 backward
  output "db" = %1
})"),
            R"(program "p" {
  input %g : bf16[6,20]
  %0 : f32[20] !gradient = sum(%g) {axes=[0], wide=true}
  output "db" = %0
}
)");
}

// The cast stands behind the sum, and the float32 tensor has another reader.
constexpr const char* kBeside = R"(program "p" {
  input %x : f32[6,20]
  input %w : bf16[6,10]
  %0 : f32[6,20] = exp(%x) @ w1 backward
  %1 : f32[20] !gradient = sum(%0) {axes=[0]} @ w1 backward
  %2 : bf16[6,20] = cast(%0) {dtype=bf16} @ w1 backward
  %3 : bf16[10,20] = matmul(%w, %2) {transpose_a=true} @ w1 backward
  output "dw" = %3
  output "db" = %1
})";

TEST_F(NarrowTest, ABiasSumsWhatProductsReadInFloat32) {
  EXPECT_EQ(narrowed(kBeside), R"(program "p" {
  input %x : f32[6,20]
  input %w : bf16[6,10]
  %0 : f32[6,20] = exp(%x)
  %1 : bf16[6,20] = cast(%0) {dtype=bf16}
  %2 : f32[20] !gradient = sum(%1) {axes=[0], wide=true}
  %3 : bf16[10,20] = matmul(%w, %1) {transpose_a=true}
  output "dw" = %3
  output "db" = %2
}
)");
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  TRACESTEP_CHECK(at != std::string::npos, "no {}", from);
  return text.replace(at, from.size(), to);
}

TEST_F(NarrowTest, OtherSumsOtherDtypesAndOtherPhasesStayAsTheyAre) {
  const auto unchanged = [](const std::string& text) {
    const Program program = parse_program(text);
    EXPECT_TRUE(narrow(program) == program) << text;
  };
  // These sums are of rows, in forward, or without a cast for products.
  unchanged(with(kBeside, "f32[20] !gradient = sum(%0) {axes=[0]}",
                 "f32[6] !gradient = sum(%0) {axes=[1]}"));
  unchanged(with(kBeside, "sum(%0) {axes=[0]} @ w1 backward", "sum(%0) {axes=[0]} @ w1 forward"));
  unchanged(
      with(with(kBeside, "%2 : bf16[6,20] = cast(%0) {dtype=bf16}", "%2 : f32[6,20] = exp(%0)"),
           "%3 : bf16[10,20] = matmul(%w, %2) {transpose_a=true}", "%3 : f32[6,20] = exp(%2)"));
  // A narrow value of forward that backward would have to keep, and one of another narrow dtype.
  unchanged(R"(program "p" {
    input %x : bf16[6,20]
    %0 : f32[6,20] = cast(%x) {dtype=f32} @ a forward
    %1 : bf16[6,20] = cast(%0) {dtype=bf16} @ a backward
    output "y" = %1
  })");
  unchanged(R"(program "p" {
    input %x : bf16[6,20]
    %0 : f32[6,20] = cast(%x) {dtype=f32} @ a backward
    %1 : f16[6,20] = cast(%0) {dtype=f16} @ a backward
    output "y" = %1
  })");
}

// The gradient of a rotated q, by heads, on its way to the product that made q.
constexpr const char* kReordered = R"(program "p" {
  input %x : f32[3,2,4,5]
  input %w : bf16[12,10]
  %0 : f32[3,2,4,5] = exp(%x) @ rope backward
  %1 : f32[3,4,2,5] = permute(%0) {axes=[0,2,1,3]} @ attn backward
  %2 : f32[12,10] = reshape(%1) {shape=[12,10]} @ attn backward
  %3 : bf16[12,10] = cast(%2) {dtype=bf16} @ q backward
  %4 : f32[10] !gradient = sum(%2) {axes=[0]} @ q backward
  %5 : bf16[10,10] = matmul(%w, %3) {transpose_a=true} @ q backward
  output "dw" = %5
  output "db" = %4
})";

TEST_F(NarrowTest, ACastStandsInFrontOfViewsThatReorderWhatItReads) {
  EXPECT_EQ(narrowed(kReordered), R"(program "p" {
  input %x : f32[3,2,4,5]
  input %w : bf16[12,10]
  %0 : f32[3,2,4,5] = exp(%x)
  %1 : bf16[3,2,4,5] = cast(%0) {dtype=bf16}
  %2 : bf16[3,4,2,5] = permute(%1) {axes=[0,2,1,3]}
  %3 : bf16[12,10] = reshape(%2) {shape=[12,10]}
  %4 : f32[10] !gradient = sum(%3) {axes=[0], wide=true}
  %5 : bf16[10,10] = matmul(%w, %3) {transpose_a=true}
  output "dw" = %5
  output "db" = %4
}
)");
  // A value that others read in float32 too, or that is in order, is cast where it was.
  EXPECT_THAT(narrowed(with(kReordered, "  output \"db\" = %4",
                            "  output \"db\" = %4\n  output \"x\" = %2")),
              HasSubstr("= cast(%2)"));
  EXPECT_THAT(narrowed(with(kReordered, "f32[3,4,2,5] = permute(%0) {axes=[0,2,1,3]}",
                            "f32[3,8,5] = reshape(%0) {shape=[3,8,5]}")),
              HasSubstr("= cast(%2)"));
}

// --- in numbers ---------------------------------------------------------------------------------
// Against float64 sums of float32 terms, each of which is off by half a unit of bfloat16 at most.
TEST_F(NarrowTest, TheErrorOfABiasIsThatOfItsRoundedTerms) {
  const Program plain = parse_program(R"(program "p" {
    input %x : f32[4096,96]
    input %w : bf16[4096,2]
    %0 : f32[96] = sum(%x) {axes=[0]} @ w1 backward
    %1 : bf16[4096,96] = cast(%x) {dtype=bf16} @ w1 backward
    %2 : bf16[2,96] = matmul(%w, %1) {transpose_a=true} @ w1 backward
    output "dw" = %2
    output "db" = %0
  })");
  const Program program = narrow(plain);
  ASSERT_THAT(print(program), HasSubstr("wide=true"));
  const Tensors leaves = testing::random_leaves(plain);
  const std::vector<double> x = testing::to_doubles(leaves.at("x"));
  std::vector<double> exact(96), magnitude(96), square(96);
  for (std::size_t i = 0; i < x.size(); ++i) {
    exact[i % 96] += x[i];
    magnitude[i % 96] += std::abs(x[i]);
    square[i % 96] += x[i] * x[i];
  }
  for (const testing::Backend& backend : testing::backends_under_test()) {
    const auto device = backend.make({.guarded = true});
    const Tensors got = testing::run_program(*device, program, leaves);
    const std::vector<double> sums = testing::to_doubles(got.at("db"));
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const double error = std::abs(sums[i] - exact[i]);
      EXPECT_LE(error, 0x1p-8 * magnitude[i]) << backend.name << " " << i;
      EXPECT_LE(error, 1.5 * 0x1p-8 * std::sqrt(square[i])) << backend.name << " " << i;
    }
    EXPECT_EQ(got.at("db").dtype, DType::kF32);
  }
}

struct Case {
  DType low = DType::kBF16;
  GradientKind gradients = GradientKind::kTransient;
  AttentionForm attention = AttentionForm::kFlash;
  bool is_rotated = false;
};

class NarrowStepTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { ops::register_all(); }

  static Program step(const Device& device, std::set<std::string> disabled) {
    ModelConfig model{.vocab = 19, .d_model = 24, .d_ff = 28, .layers = 2, .heads = 3};
    model.norm = NormKind::kLayer;
    model.activation = Activation::kGelu;
    model.is_gated = false;
    model.norm_bias = model.qkv_bias = model.output_bias = model.ffn_bias = true;
    if (!GetParam().is_rotated) {
      model.positions = Positions::kLearned;
      model.max_positions = 5;
    }
    RunSpec run{.verify = true};
    PassContext context;
    run.mode =
        GetParam().gradients == GradientKind::kTransient ? Mode::kStep : Mode::kForwardBackward;
    run.executor = ExecutorKind::kArena;
    run.precision.autocast = GetParam().low;
    run.gradients = GetParam().gradients;
    run.attention = GetParam().attention;
    run.optimizer.kind = OptimizerKind::kSgd;
    run.optimizer.loss_scaling.enabled = GetParam().low == DType::kF16;
    context.has_kernel = [&](const OpDef& op) { return device.has_kernel(op); };
    context.disabled = std::move(disabled);
    return run_pipeline(loss_program(model, {.batch = 2, .context = 5}), run, context).program;
  }
};

// Only the gradients of biases have other bits, and those are as near to float64.
TEST_P(NarrowStepTest, OnlyBiasesChangeAndWithinTheErrorOfTheDtype) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    const auto device = backend.make({.threads = 2, .guarded = true});
    const Program plain = step(*device, {"narrow"}), program = step(*device, {});
    EXPECT_LT(launch_count(program), launch_count(plain));
    const Cost less = total_cost(program), more = total_cost(plain);
    EXPECT_LT(less.bytes_read + less.bytes_written, more.bytes_read + more.bytes_written);
    Tensors leaves = testing::random_leaves(plain, 0.0, 0.5);
    std::erase_if(leaves, [](const auto& leaf) { return leaf.first.starts_with("shadow."); });
    const Tensors exact = testing::reference_values(step(*device, {"narrow", "shadow"}), leaves);
    const Tensors before = testing::run_program(*device, plain, leaves);
    int biases = 0;
    for (const auto& [name, value] : testing::run_program(*device, program, leaves)) {
      SCOPED_TRACE(backend.name + " " + name);
      const std::vector<double> got = testing::to_doubles(value);
      const double off = testing::max_difference(got, testing::to_doubles(before.at(name)));
      if (off == 0 || name.starts_with("shadow.")) continue;
      ++biases;
      if (backend.name == "cpu" && name != "grad_norm") {
        EXPECT_THAT(name, ::testing::EndsWith(".bias"));
      }
      const std::vector<double> wanted = testing::to_doubles(exact.at(name));
      const double plain_error =
          testing::max_difference(testing::to_doubles(before.at(name)), wanted);
      EXPECT_LE(testing::max_difference(got, wanted),
                2 * plain_error + 0x1p-8 * testing::max_abs(wanted));
    }
    EXPECT_GT(biases, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Steps, NarrowStepTest,
                         ::testing::Values(Case{}, Case{.attention = AttentionForm::kNaive},
                                           Case{.is_rotated = true}, Case{.low = DType::kF16},
                                           Case{.gradients = GradientKind::kPersistent},
                                           Case{.gradients = GradientKind::kAccumulate}));

}  // namespace
}  // namespace tracestep
