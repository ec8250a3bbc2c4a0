// Tests pass `merge` on products with weights that lie side by side, as text and in numbers.
#include "passes/memory_passes.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/cost.h"
#include "analysis/saved.h"
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
using testing::Tensors;

class MergeTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static std::string merged_text(const std::string& text) {
    const Program out = merge(parse_program(text));
    verify(out);
    verify(materialize(out), VerifyStage::kMaterialized);
    return print(out, {.origins = false});
  }
  static int count(const std::string& text, const std::string& what) {
    int out = 0;
    for (std::size_t i = text.find(what); i != text.npos; i = text.find(what, i + 1)) ++out;
    return out;
  }
};

TEST_F(MergeTest, ProductsOfOneValueWithAllPartsAreOneProduct) {
  EXPECT_EQ(merged_text(R"(program "p" {
    input %x : f32[4,6]
    parameter %k : f32[3,6] in "qk" at 12 of 30
    parameter %q : f32[2,6] in "qk" at 0 of 30
    %0 : f32[4,3] = matmul(%x, %k) {transpose_b=true}
    %1 : f32[4,3] = exp(%0)
    %2 : f32[4,2] = matmul(%x, %q) {transpose_b=true}
    output "k" = %1
    output "q" = %2
  })"),
            R"(program "p" {
  input %x : f32[4,6]
  parameter %k : f32[3,6] in "qk" at 12 of 30
  parameter %q : f32[2,6] in "qk" at 0 of 30
  %0 : f32[5,6] = block(%q, %k)
  %1 : f32[4,5] = matmul(%x, %0) {transpose_b=true}
  %2 : f32[4,2] = slice(%1) {axis=1, start=0, stop=2}
  %3 : f32[4,3] = slice(%1) {axis=1, start=2, stop=5}
  %4 : f32[4,3] = exp(%3)
  output "k" = %4
  output "q" = %2
}
)");
}

// Biases are one where they lie side by side as the weights do; else the products stay.
TEST_F(MergeTest, BiasesThatLieSideBySideAreAddedByTheOneProduct) {
  const std::string text = R"(program "p" {
    input %x : f32[4,6]
    parameter %k : f32[3,6] in "qk" at 12 of 30
    parameter %kb : f32[3] in "qk.bias" at 2 of 5
    parameter %q : f32[2,6] in "qk" at 0 of 30
    parameter %qb : f32[2] in "qk.bias" at 0 of 5
    %0 : f32[4,3] = matmul_bias(%x, %k, %kb) {transpose_b=true}
    %1 : f32[4,2] = matmul_bias(%x, %q, %qb) {transpose_b=true}
    output "k" = %0
    output "q" = %1
  })";
  EXPECT_THAT(merged_text(text), HasSubstr(R"(
  %0 : f32[5] = block(%qb, %kb)
  %1 : f32[5,6] = block(%q, %k)
  %2 : f32[4,5] = matmul_bias(%x, %1, %0) {transpose_b=true}
  %3 : f32[4,2] = slice(%2) {axis=1, start=0, stop=2}
)"));
  std::string apart = text;
  for (const std::string part : {" in \"qk.bias\" at 2 of 5", " in \"qk.bias\" at 0 of 5"}) {
    apart.erase(apart.find(part), part.size());
  }
  EXPECT_EQ(count(merged_text(apart), "matmul_bias("), 2);
}

// Backward of two such products: the gradient of x, and those of the weights, whose readers wait.
constexpr const char* kBackward = R"(program "p" {
  input %x : f32[4,6]
  input %a : f32[4,2]
  input %b : f32[4,3]
  input %r : f32[4,6]
  parameter %q : f32[2,6] in "qk" at 0 of 30
  parameter %k : f32[3,6] in "qk" at 12 of 30
  %0 : f32[4,3] = exp(%b)
  %1 : f32[4,6] = matmul(%0, %k)
  %2 : f32[3,6] !gradient = matmul(%0, %x) {transpose_a=true}
  %3 : f32[3,6] = exp(%2)
  %4 : f32[4,6] = add(%r, %1)
  %5 : f32[4,2] = exp(%a)
  %6 : f32[4,6] = matmul(%5, %q)
  %7 : f32[2,6] !gradient = matmul(%5, %x) {transpose_a=true}
  %8 : f32[4,6] = add(%4, %6)
  output "dx" = %8
  output "grad.q" = %7
  output "grad.k" = %3
})";

TEST_F(MergeTest, ASumOfProductsIsAProductOfAnAssemblyAndSoAreTheGradientsOfTheWeights) {
  EXPECT_EQ(merged_text(kBackward), R"(program "p" {
  input %x : f32[4,6]
  input %a : f32[4,2]
  input %b : f32[4,3]
  input %r : f32[4,6]
  parameter %q : f32[2,6] in "qk" at 0 of 30
  parameter %k : f32[3,6] in "qk" at 12 of 30
  %0 : f32[4,3] = exp(%b)
  %1 : f32[4,2] = exp(%a)
  %2 : f32[4,5] = assemble(%1, %0) {axis=1}
  %3 : f32[5,6] !gradient = matmul(%2, %x) {transpose_a=true}
  %4 : f32[2,6] !gradient = slice(%3) {axis=0, start=0, stop=2}
  %5 : f32[3,6] !gradient = slice(%3) {axis=0, start=2, stop=5}
  %6 : f32[3,6] = exp(%5)
  %7 : f32[5,6] = block(%q, %k)
  %8 : f32[4,6] = matmul(%2, %7)
  %9 : f32[4,6] = add(%8, %r)
  output "dx" = %9
  output "grad.q" = %4
  output "grad.k" = %6
}
)");
}

// A product adds what it computes to the gradient of the micro-batches before.
TEST_F(MergeTest, GradientsThatAreAddedToSomethingStayProductsOfTheirOwn) {
  std::string text = kBackward;
  text.replace(text.find("exp(%2)"), 7, "add(%2, %old)");
  text.insert(text.find("  %0"), "  state %old : f32[3,6] !gradient\n");
  const std::string out = merged_text(text);
  EXPECT_THAT(out, HasSubstr("%3 : f32[4,2] = slice(%2) {axis=1, start=0, stop=2}\n"
                             "  %4 : f32[2,6] !gradient = matmul(%3, %x) {transpose_a=true}\n"
                             "  %5 : f32[4,3] = slice(%2) {axis=1, start=2, stop=5}\n"
                             "  %6 : f32[3,6] !gradient = matmul(%5, %x) {transpose_a=true}\n"
                             "  %7 : f32[3,6] = add(%6, %old)\n"));
  EXPECT_THAT(out, HasSubstr("%9 : f32[4,6] = matmul(%2, %8)"));
  // The operands are copied, since the ops before them cannot write them in place.
  EXPECT_EQ(count(print(materialize(parse_program(out))), "copy"), 2);
}

// Gradients of biases: sums of the same operands over their rows, each through a view.
std::string with_column_sums(std::string text) {
  text.replace(text.find("  %1 :"), 0, R"(  %20 : f32[2,2,3] = reshape(%0) {shape=[2,2,3]}
  %21 : f32[3] !gradient = sum(%20) {axes=[0,1]}
  %22 : f32[3] = exp(%21)
)");
  text.replace(text.find("  %6 :"), 0, R"(  %23 : f32[2,2,2] = reshape(%5) {shape=[2,2,2]}
  %24 : f32[2] !gradient = sum(%23) {axes=[0,1]}
)");
  return text.replace(text.find("  output"), 0,
                      "  output \"grad.bias_q\" = %24\n  output \"grad.bias_k\" = %22\n");
}

TEST_F(MergeTest, SumsOfThePartsOfAnAssemblyAreASumOfTheAssembly) {
  const std::string out = merged_text(with_column_sums(kBackward));
  EXPECT_THAT(out, HasSubstr("  %2 : f32[4,5] = assemble(%1, %0) {axis=1}\n"
                             "  %3 : f32[5] !gradient = sum(%2) {axes=[0]}\n"
                             "  %4 : f32[2] !gradient = slice(%3) {axis=0, start=0, stop=2}\n"
                             "  %5 : f32[3] !gradient = slice(%3) {axis=0, start=2, stop=5}\n"));
  EXPECT_EQ(count(out, "sum("), 1);
  // Columns of which another reduction is taken.
  std::string other = with_column_sums(kBackward);
  other.replace(other.find("sum(%23) {axes=[0,1]}"), 21, "max(%23) {axes=[0,1]}");
  EXPECT_EQ(count(merged_text(other), "sum("), 1);
  EXPECT_EQ(count(merged_text(other), "max("), 1);
}

TEST_F(MergeTest, SumsOfAnAssemblyHaveTheValuesOfThoseOfItsParts) {
  const Program plain = parse_program(with_column_sums(kBackward)), program = merge(plain);
  for (const testing::Backend& backend : testing::backends_under_test()) {
    const auto device = backend.make({.guarded = true});
    const Tensors leaves = testing::random_leaves(plain);
    const Tensors expected = testing::run_program(*device, plain, leaves);
    const Tensors got = testing::run_program(*device, program, leaves);
    for (const char* name : {"grad.bias_q", "grad.bias_k"}) {
      EXPECT_LE(testing::max_difference(testing::to_doubles(got.at(name)),
                                        testing::to_doubles(expected.at(name))),
                0x1p-18 * testing::max_abs(testing::to_doubles(expected.at(name))))
          << backend.name << " " << name;
    }
  }
}

TEST_F(MergeTest, WeightsThatAreCastAreCastAsOne) {
  EXPECT_EQ(merged_text(R"(program "p" {
    input %x : bf16[4,6]
    parameter %q : f32[2,6] in "qk" at 0 of 30
    parameter %k : f32[3,6] in "qk" at 12 of 30
    %0 : bf16[2,6] !weight_cast = cast(%q) {dtype=bf16}
    %1 : bf16[4,2] = matmul(%x, %0) {transpose_b=true}
    %2 : bf16[3,6] !weight_cast = cast(%k) {dtype=bf16}
    %3 : bf16[4,3] = matmul(%x, %2) {transpose_b=true}
    %4 : bf16[4,2] = exp(%1)
    %5 : bf16[4,3] = exp(%3)
    %6 : bf16[4,6] = matmul(%4, %0)
    %7 : bf16[4,6] = matmul(%5, %2)
    %8 : bf16[4,6] = add(%6, %7)
    output "y" = %8
  })"),
            R"(program "p" {
  input %x : bf16[4,6]
  parameter %q : f32[2,6] in "qk" at 0 of 30
  parameter %k : f32[3,6] in "qk" at 12 of 30
  %0 : f32[5,6] = block(%q, %k)
  %1 : bf16[5,6] !weight_cast = cast(%0) {dtype=bf16}
  %2 : bf16[4,5] = matmul(%x, %1) {transpose_b=true}
  %3 : bf16[4,2] = slice(%2) {axis=1, start=0, stop=2}
  %4 : bf16[4,3] = slice(%2) {axis=1, start=2, stop=5}
  %5 : bf16[4,2] = exp(%3)
  %6 : bf16[4,3] = exp(%4)
  %7 : bf16[4,5] = assemble(%5, %6) {axis=1}
  %8 : bf16[4,6] = matmul(%7, %1)
  output "y" = %8
}
)");
}

TEST_F(MergeTest, CastsAndViewsOfTheTermsAreThoseOfTheSum) {
  const std::string out = merged_text(R"(program "p" {
    input %a : bf16[4,2]
    input %b : bf16[4,3]
    parameter %q : bf16[2,6] in "qk" at 0 of 30
    parameter %k : bf16[3,6] in "qk" at 12 of 30
    %0 : bf16[4,2] = exp(%a)
    %1 : bf16[4,6] = matmul(%0, %q)
    %2 : bf16[2,2,6] = reshape(%1) {shape=[2,2,6]}
    %3 : f32[2,2,6] = cast(%2) {dtype=f32}
    %4 : bf16[4,3] = exp(%b)
    %5 : bf16[4,6] = matmul(%4, %k)
    %6 : bf16[2,2,6] = reshape(%5) {shape=[2,2,6]}
    %7 : f32[2,2,6] = cast(%6) {dtype=f32}
    %8 : f32[2,2,6] = add(%3, %7)
    output "y" = %8
  })");
  EXPECT_EQ(count(out, "matmul"), 1);
  EXPECT_EQ(count(out, "cast"), 1);
  EXPECT_EQ(count(out, "add"), 0);
}

// Backward of two products with adapters: each is added to that of its adapter before the sum. The
// gradients of q and k have readers of their own, and so each adapter's operand.
constexpr const char* kAdapted = R"(program "p" {
  input %x : bf16[4,6]
  input %a : bf16[4,2]
  input %b : bf16[4,3]
  constant %q : bf16[2,6] in "qk" at 0 of 30
  constant %k : bf16[3,6] in "qk" at 12 of 30
  parameter %qa : bf16[1,6] in "qka" at 0 of 12
  parameter %ka : bf16[1,6] in "qka" at 6 of 12
  parameter %qb : bf16[2,1]
  parameter %kb : bf16[3,1]
  %0 : bf16[4,3] = exp(%b) @ k backward
  %1 : bf16[4,1] = matmul(%0, %kb) @ k backward
  %2 : bf16[4,1] = affine(%1) {scale=2.0} @ k backward
  %3 : bf16[4,6] = matmul(%2, %ka) @ k backward
  %4 : bf16[1,6] !gradient = matmul(%2, %x) {transpose_a=true} @ k backward
  %5 : f32[4,6] = cast(%3) {dtype=f32} @ k backward
  %6 : bf16[4,6] = matmul(%0, %k) @ k backward
  %7 : f32[4,6] = cast(%6) {dtype=f32} @ k backward
  %8 : f32[4,6] = add(%5, %7) @ k backward
  %9 : f32[2,2,6] = reshape(%8) {shape=[2,2,6]} @ k backward
  %10 : bf16[4,2] = exp(%a) @ q backward
  %11 : bf16[4,1] = matmul(%10, %qb) @ q backward
  %12 : bf16[4,1] = affine(%11) {scale=2.0} @ q backward
  %13 : bf16[4,6] = matmul(%12, %qa) @ q backward
  %14 : bf16[1,6] !gradient = matmul(%12, %x) {transpose_a=true} @ q backward
  %15 : f32[4,6] = cast(%13) {dtype=f32} @ q backward
  %16 : bf16[4,6] = matmul(%10, %q) @ q backward
  %17 : f32[4,6] = cast(%16) {dtype=f32} @ q backward
  %18 : f32[4,6] = add(%15, %17) @ q backward
  %19 : f32[2,2,6] = reshape(%18) {shape=[2,2,6]} @ q backward
  %20 : f32[2,2,6] = add(%9, %19) @ norm backward
  output "dx" = %20
  output "grad.qa" = %14
  output "grad.ka" = %4
})";

TEST_F(MergeTest, SumsBehindViewsAreOneSumAndWhatElseReadsAPartReadsASliceOfTheAssembly) {
  EXPECT_EQ(merged_text(kAdapted), R"(program "p" {
  input %x : bf16[4,6]
  input %a : bf16[4,2]
  input %b : bf16[4,3]
  constant %q : bf16[2,6] in "qk" at 0 of 30
  constant %k : bf16[3,6] in "qk" at 12 of 30
  parameter %qa : bf16[1,6] in "qka" at 0 of 12
  parameter %ka : bf16[1,6] in "qka" at 6 of 12
  parameter %qb : bf16[2,1]
  parameter %kb : bf16[3,1]
  %0 : bf16[4,3] = exp(%b)
  %1 : bf16[4,2] = exp(%a)
  %2 : bf16[4,5] = assemble(%1, %0) {axis=1}
  %3 : bf16[4,3] = slice(%2) {axis=1, start=2, stop=5}
  %4 : bf16[4,1] = matmul(%3, %kb)
  %5 : bf16[4,1] = affine(%4) {scale=2.0}
  %6 : bf16[4,2] = slice(%2) {axis=1, start=0, stop=2}
  %7 : bf16[4,1] = matmul(%6, %qb)
  %8 : bf16[4,1] = affine(%7) {scale=2.0}
  %9 : bf16[4,2] = assemble(%8, %5) {axis=1}
  %10 : bf16[2,6] !gradient = matmul(%9, %x) {transpose_a=true}
  %11 : bf16[1,6] !gradient = slice(%10) {axis=0, start=0, stop=1}
  %12 : bf16[1,6] !gradient = slice(%10) {axis=0, start=1, stop=2}
  %13 : bf16[5,6] = block(%q, %k)
  %14 : bf16[4,6] = matmul(%2, %13)
  %15 : f32[4,6] = cast(%14) {dtype=f32}
  %16 : f32[2,2,6] = reshape(%15) {shape=[2,2,6]}
  %17 : bf16[2,6] = block(%qa, %ka)
  %18 : bf16[4,6] = matmul(%9, %17)
  %19 : f32[4,6] = cast(%18) {dtype=f32}
  %20 : f32[2,2,6] = reshape(%19) {shape=[2,2,6]}
  %21 : f32[2,2,6] = add(%16, %20)
  output "dx" = %21
  output "grad.qa" = %11
  output "grad.ka" = %12
}
)");
}

// A part of the assembly may depend on what reads another: then it is read as it was.
TEST_F(MergeTest, WhatLeadsToAnotherPartReadsNoSlice) {
  std::string text = kAdapted;
  text.replace(text.find("exp(%a)"), 7, "affine(%30) {scale=3.0}");
  text.insert(text.find("  %10 "),
              "  %30 : bf16[4,2] = broadcast(%1) {shape=[4,2]} @ q backward\n");
  const std::string out = merged_text(text);
  EXPECT_THAT(out, HasSubstr("assemble"));
  EXPECT_THAT(out, HasSubstr("matmul(%0, %kb)"));
}

TEST_F(MergeTest, NothingIsMergedWithoutAWholeBlockOrWhereAValueIsReadElsewhere) {
  const auto unchanged = [](const std::string& text) {
    const Program program = parse_program(text);
    EXPECT_TRUE(merge(program) == program) << text;
  };
  // A part is missing.
  unchanged(R"(program "p" {
    input %x : f32[4,6]
    parameter %q : f32[2,6] in "qk" at 0 of 30
    parameter %k : f32[3,6] in "qk" at 12 of 30
    %0 : f32[4,2] = matmul(%x, %q) {transpose_b=true}
    output "y" = %0
  })");
  // Another value.
  unchanged(R"(program "p" {
    input %x : f32[4,6]
    input %z : f32[4,6]
    parameter %q : f32[2,6] in "qk" at 0 of 30
    parameter %k : f32[3,6] in "qk" at 12 of 30
    %0 : f32[4,2] = matmul(%x, %q) {transpose_b=true}
    %1 : f32[4,3] = matmul(%z, %k) {transpose_b=true}
    output "y" = %0
    output "z" = %1
  })");
  // A term of the sum that the program also gives out.
  unchanged(R"(program "p" {
    input %a : f32[4,2]
    input %b : f32[4,3]
    parameter %q : f32[2,6] in "qk" at 0 of 30
    parameter %k : f32[3,6] in "qk" at 12 of 30
    %0 : f32[4,2] = exp(%a)
    %1 : f32[4,6] = matmul(%0, %q)
    %2 : f32[4,3] = exp(%b)
    %3 : f32[4,6] = matmul(%2, %k)
    %4 : f32[4,6] = add(%1, %3)
    output "term" = %1
    output "y" = %4
  })");
}

// --- whole steps --------------------------------------------------------------------------------
std::int64_t products_of(const Program& program) {
  return std::ranges::count_if(program.nodes, is_product);
}

struct Case {
  std::optional<DType> low = {};
  GradientKind gradients = GradientKind::kTransient;
  Granularity ops = Granularity::kFused;
  AttentionForm attention = AttentionForm::kNaive;
  double clip = 0.0;
  Mode mode = Mode::kStep;
  bool adapts = false;

  // Products of a layer less: 3 + 2 of forward are 1 + 1, and so are as many in backward, twice;
  // where gradients of weights are added up, those stay.
  // With adapters as many of their own are one in each pass, gradients of theirs take the place of
  // those of weights, and the first layer's q, k and v have no gradient of their input.
  int saved_products() const {
    if (adapts) return 12;
    if (mode == Mode::kInference || mode == Mode::kForward) return 3;
    return gradients == GradientKind::kAccumulate ? 6 : 9;
  }
};

class MergedStepTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { ops::register_all(); }

  static Program step(const Device& device, std::set<std::string> disabled) {
    const ModelConfig model{.vocab = 19, .d_model = 24, .d_ff = 28, .layers = 2, .heads = 3};
    RunSpec run{.verify = true};
    PassContext context;
    run.mode = GetParam().mode;
    run.executor = ExecutorKind::kArena;
    run.precision.autocast = GetParam().low;
    run.gradients = GetParam().gradients;
    run.ops = GetParam().ops;
    run.attention = GetParam().attention;
    run.optimizer.clip = GetParam().clip;
    if (GetParam().adapts) run.lora = {.rank = 2, .targets = {"all"}};
    run.optimizer.loss_scaling.enabled = GetParam().low == DType::kF16;
    context.has_kernel = [&](const OpDef& op) { return device.has_kernel(op); };
    context.disabled = std::move(disabled);
    return run_pipeline(loss_program(model, {.batch = 2, .context = 5}), run, context).program;
  }
};

TEST_P(MergedStepTest, ItLeavesTheValuesOfTheStepThatIsNotMerged) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    const auto device = backend.make({.threads = 2, .guarded = true});
    // Fewer products that add are left where some are merged.
    const Program plain = step(*device, {"merge", "epilogue"}),
                  merged = step(*device, {"epilogue"});
    EXPECT_EQ(gemm_flops(merged), gemm_flops(plain));
    EXPECT_EQ(products_of(merged), products_of(plain) - 2 * GetParam().saved_products());
    EXPECT_LT(launch_count(merged), launch_count(plain));
    Tensors leaves = testing::random_leaves(plain, 0.0, 0.5);
    std::erase_if(leaves, [](const auto& leaf) { return leaf.first.starts_with("shadow."); });
    const Tensors exact = testing::reference_values(step(*device, {"merge", "shadow"}), leaves);
    const Tensors unmerged = testing::run_program(*device, plain, leaves);
    for (const auto& [name, value] : testing::run_program(*device, merged, leaves)) {
      // Shadows are rounded from the weights; what is saved is not the same.
      if (name.starts_with("shadow.") || name.starts_with("saved.")) continue;
      SCOPED_TRACE(backend.name + " " + name);
      const std::vector<double> expected = testing::to_doubles(exact.at(name));
      const double largest = testing::max_abs(expected);
      const double floor = largest * (is_low_precision(value.dtype) ? 0x1p-8 : 16 * 0x1p-24);
      EXPECT_LE(
          testing::max_difference(testing::to_doubles(value), expected),
          2.0 * testing::max_difference(testing::to_doubles(unmerged.at(name)), expected) + floor);
    }
  }
}

class MergedFloat64Test : public MergedStepTest {};

TEST_P(MergedFloat64Test, TheValuesAreTheSame) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    const auto device = backend.make({});
    const Program plain = step(*device, {"merge"}), merged = step(*device, {});
    EXPECT_LT(launch_count(merged), launch_count(plain));
    const Tensors leaves = testing::random_leaves(plain, 0.0, 0.5);
    const Tensors expected = testing::reference_values(plain, leaves);
    for (const auto& [name, value] : testing::reference_values(merged, leaves)) {
      const std::vector<double> wanted = testing::to_doubles(expected.at(name));
      EXPECT_LE(testing::max_difference(testing::to_doubles(value), wanted),
                1e-12 * std::max(1.0, testing::max_abs(wanted)))
          << name;
    }
  }
}

TEST_P(MergedStepTest, WhatIsSavedForBackwardDoesNotChange) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    const auto device = backend.make({});
    EXPECT_EQ(saved_bytes(step(*device, {})), saved_bytes(step(*device, {"merge"})));
  }
}

INSTANTIATE_TEST_SUITE_P(Steps, MergedFloat64Test,
                         ::testing::Values(Case{},
                                           Case{.attention = AttentionForm::kFlash, .clip = 1.0},
                                           Case{.ops = Granularity::kPrimitive},
                                           Case{.gradients = GradientKind::kAccumulate},
                                           Case{.adapts = true}));

INSTANTIATE_TEST_SUITE_P(
    Steps, MergedStepTest,
    ::testing::Values(
        Case{std::nullopt}, Case{.low = DType::kBF16},
        Case{.low = DType::kBF16, .attention = AttentionForm::kFlash, .clip = 1.0},
        Case{.low = DType::kF16, .ops = Granularity::kPrimitive},
        Case{.gradients = GradientKind::kAccumulate, .attention = AttentionForm::kFlash},
        Case{.low = DType::kBF16, .gradients = GradientKind::kPersistent}, Case{.adapts = true},
        Case{.low = DType::kBF16, .attention = AttentionForm::kFlash, .adapts = true},
        Case{.low = DType::kBF16, .mode = Mode::kForwardBackward},
        Case{.low = DType::kBF16,
             .gradients = GradientKind::kAccumulate,
             .mode = Mode::kForwardBackward},
        Case{.low = DType::kBF16,
             .gradients = GradientKind::kPersistent,
             .mode = Mode::kForwardBackward},
        Case{.low = DType::kBF16, .mode = Mode::kForward},
        Case{.low = DType::kBF16, .mode = Mode::kInference}, Case{.mode = Mode::kInference}));

}  // namespace
}  // namespace tracestep
