// Tests pass `gemv` on products of one row, as text and in numbers.
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

class GemvTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static std::string text_of(const std::string& text) {
    const Program out = gemv(parse_program(text), [](const OpDef&) { return true; });
    verify(out);
    return print(out, {.origins = false});
  }
};

TEST_F(GemvTest, TheNormInFrontAndTheResidualBehindJoin) {
  EXPECT_THAT(text_of(R"(program "p" {
    input %x : f32[1,1,8]
    input %r : f32[1,1,3]
    parameter %s : f32[8]
    parameter %w : f32[3,8]
    %0, %1 : f32[1,1,8], f32[1,1] = rms_norm(%x, %s) {eps=0.5}
    %2 : f32[1,8] = reshape(%0) {shape=[1,8]}
    %3 : f32[1,3] = matmul(%2, %w) {transpose_b=true}
    %4 : f32[1,1,3] = reshape(%3) {shape=[1,1,3]}
    %5 : f32[1,1,3] = add(%r, %4)
    output "y" = %5
  })"),
              HasSubstr("  %0 : f32[1,1,3] = gemv(%x, %w, %s, %r) {added=true, early=true, "
                        "eps=0.5, norm=\"rms\"}\n  output \"y\" = %0\n"));
}

TEST_F(GemvTest, ABiasAndTheActivationBehindItJoin) {
  EXPECT_THAT(text_of(R"(program "p" {
    input %x : f32[1,8]
    parameter %w : f32[3,8]
    parameter %b : f32[3]
    %0 : f32[1,3] = matmul_bias(%x, %w, %b) {transpose_b=true}
    %1 : f32[1,3] = gelu(%0)
    output "y" = %1
  })"),
              HasSubstr("gemv(%x, %w, %b) {activation=\"gelu\", biased=true, early=true}\n"));
}

TEST_F(GemvTest, GatesJoinInTheirOrderAlone) {
  const std::string head = R"(program "p" {
    input %x : f32[1,8]
    parameter %w : f32[6,8]
    %0 : f32[1,6] = matmul(%x, %w) {transpose_b=true}
    %1 : f32[1,3] = slice(%0) {axis=1, start=0, stop=3}
    %2 : f32[1,3] = slice(%0) {axis=1, start=3, stop=6}
    )";
  EXPECT_THAT(text_of(head + "%3 : f32[1,3] = swiglu(%1, %2)\noutput \"y\" = %3 }"),
              HasSubstr("gemv(%x, %w) {activation=\"silu\", early=true, gated=true}"));
  EXPECT_THAT(text_of(head + "%3 : f32[1,3] = gelu(%1)\n%4 : f32[1,3] = mul(%3, %2)\n"
                             "output \"y\" = %4 }"),
              HasSubstr("gemv(%x, %w) {activation=\"gelu\", early=true, gated=true}"));
  EXPECT_THAT(text_of(head + "%3 : f32[1,3] = swiglu(%2, %1)\noutput \"y\" = %3 }"),
              HasSubstr("gemv(%x, %w) {early=true}"));
}

// A weight that changes while the program runs must not be read before earlier nodes have run.
TEST_F(GemvTest, OnlyWeightsThatStayAreReadEarly) {
  EXPECT_THAT(text_of(R"(program "p" {
    input %x : f32[1,8]
    parameter %w : f32[3,8]
    parameter %u : f32[3,8]
    %0 : f32[3,8] = exp(%w)
    %1 : f32[1,3] = matmul(%x, %0) {transpose_b=true}
    %2 : f32[1,3] = matmul(%x, %u) {transpose_b=true}
    %3 : f32[3,8] = exp(%u)
    update %u = %3
    output "y" = %1
    output "z" = %2
  })"),
              Not(HasSubstr("gemv")));
  EXPECT_THAT(text_of(R"(program "p" {
    input %x : f32[2,8]
    parameter %w : f32[3,8]
    %0 : f32[2,3] = matmul(%x, %w) {transpose_b=true}
    output "y" = %0
  })"),
              Not(HasSubstr("gemv")));
}

// --- whole models -------------------------------------------------------------------------------
ModelConfig gated() {
  return {.vocab = 19, .d_model = 24, .d_ff = 40, .layers = 2, .heads = 3};
}
ModelConfig with_biases() {
  ModelConfig out = gated();
  out.norm = NormKind::kLayer;
  out.activation = Activation::kGeluTanh;
  out.is_gated = false;
  out.norm_bias = out.qkv_bias = out.output_bias = out.ffn_bias = true;
  return out;
}
ModelConfig with_norms_behind() {
  ModelConfig out = gated();
  out.activation = Activation::kGelu;
  out.norm_place = NormPlace::kBoth;
  out.norm_offset = 1.0;
  return out;
}

struct Case {
  ModelConfig (*model)();
  std::size_t products;  // of the decoded token, each a gemv
};

class GemvModelTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { ops::register_all(); }

  static Program token(std::string_view last) {
    RunSpec run{.verify = true};
    run.mode = Mode::kInference;
    run.executor = ExecutorKind::kArena;
    const PassContext context{.has_kernel = [](const OpDef& op) { return !op.always_decompose; },
                              .stop_after = std::string(last)};
    const Program plain = decode_program(GetParam().model(), {.batch = 1, .context = 5});
    return run_pipeline(plain, run, context).program;
  }
};

TEST_P(GemvModelTest, ATokenIsDecodedAsBefore) {
  const Program plain = token("merge"), program = token("gemv");
  EXPECT_EQ(std::ranges::count_if(program.nodes,
                                  [](const Node& node) { return node.op->name == "gemv"; }),
            static_cast<std::ptrdiff_t>(GetParam().products));
  Tensors leaves = testing::random_leaves(plain, 0.0, 0.5);
  for (const testing::Backend& backend : testing::backends_under_test()) {
    const auto device = backend.make({.threads = 2, .guarded = true});
    SCOPED_TRACE(backend.name);
    const Tensors expected = testing::run_program(*device, plain, leaves);
    const Tensors found = testing::run_program(*device, program, leaves);
    const std::vector<double> logits = testing::to_doubles(expected.at("logits"));
    EXPECT_LE(testing::max_difference(testing::to_doubles(found.at("logits")), logits),
              1e-5 * testing::max_abs(logits));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GemvModelTest,
                         ::testing::Values(Case{gated, 9}, Case{with_biases, 9},
                                           Case{with_norms_behind, 9}));

}  // namespace
}  // namespace tracestep
