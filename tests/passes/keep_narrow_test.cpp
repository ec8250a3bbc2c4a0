// Tests pass `keep_narrow` on values that forward widens and backward reads, as text and in
// numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/saved.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "nn/transformer.h"
#include "ops/functions.h"
#include "passes/kernel_passes.h"
#include "passes/memory_passes.h"
#include "passes/pipeline.h"
#include "support/backends.h"
#include "support/run_program.h"

namespace tracestep {
namespace {

using testing::Tensors;

std::string with(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  TRACESTEP_CHECK(at != std::string::npos, "no {}", from);
  return text.replace(at, from.size(), to);
}

// A product, its bias and a GELU, and the way back.
constexpr const char* kFeedForward = R"(program "p" {
  input %x : bf16[6,4]
  input %dy : f32[2,3,8]
  parameter %w : bf16[8,4]
  parameter %b : f32[8]
  %0 : bf16[6,8] = matmul(%x, %w) {transpose_b=true} @ w1 forward
  %1 : bf16[2,3,8] = reshape(%0) {shape=[2,3,8]} @ w1 forward
  %2 : f32[2,3,8] = broadcast(%b) {shape=[2,3,8]} @ w1 forward
  %3 : f32[2,3,8] = cast(%1) {dtype=f32} @ w1 forward
  %4 : f32[2,3,8] = add(%3, %2) @ w1 forward
  %5 : f32[2,3,8] = gelu(%4) @ act forward
  %6 : f32[2,3,8] = gelu_grad(%dy, %4) @ act backward
  output "y" = %5
  output "dx" = %6
})";

class KeepNarrowTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static void expect_unchanged(const std::string& text) {
    const Program program = parse_program(text);
    EXPECT_TRUE(keep_narrow(program) == program) << text;
  }
};

TEST_F(KeepNarrowTest, BackwardWidensAProductAndAddsItsBiasAgain) {
  const Program plain = parse_program(kFeedForward), out = keep_narrow(plain);
  verify(out);
  EXPECT_EQ(print(out, {.origins = false}), R"(program "p" {
  input %x : bf16[6,4]
  input %dy : f32[2,3,8]
  parameter %w : bf16[8,4]
  parameter %b : f32[8]
  %0 : bf16[6,8] = matmul(%x, %w) {transpose_b=true}
  %1 : bf16[2,3,8] = reshape(%0) {shape=[2,3,8]}
  %2 : f32[2,3,8] = broadcast(%b) {shape=[2,3,8]}
  %3 : f32[2,3,8] = cast(%1) {dtype=f32}
  %4 : f32[2,3,8] = add(%3, %2)
  %5 : f32[2,3,8] = gelu(%4)
  %6 : f32[2,3,8] = cast(%1) {dtype=f32}
  %7 : f32[2,3,8] = add(%6, %2)
  %8 : f32[2,3,8] = gelu_grad(%dy, %7)
  output "y" = %5
  output "dx" = %8
}
)");
  EXPECT_EQ(out.nodes[7].origin().phase, Phase::kBackward);
  EXPECT_EQ(out.nodes[7].origin().path, "w1");
  EXPECT_EQ(saved_bytes(plain), 48 * 4);
  EXPECT_EQ(saved_bytes(out), 48 * 2);
}

TEST_F(KeepNarrowTest, WhatIsNoNarrowerOrReadByAKernelOfItsOwnIsKept) {
  // The other term is an activation; a product reads the sum; forward alone reads it.
  expect_unchanged(with(
      with(kFeedForward, "broadcast(%b) {shape=[2,3,8]} @ w1 forward", "exp(%dy) @ w1 forward"),
      "parameter %b", "input %b"));
  expect_unchanged(with(kFeedForward, "gelu_grad(%dy, %4) @ act backward\n",
                        "gelu_grad(%dy, %4) @ act backward\n"
                        "  %7 : f32[2,3,3] = matmul(%4, %dy) {transpose_b=true} @ act backward\n"
                        "  output \"product\" = %7\n"));
  expect_unchanged(
      with(kFeedForward, "gelu_grad(%dy, %4) @ act backward", "gelu_grad(%dy, %4) @ act forward"));
  std::string wide = kFeedForward;
  for (auto at = wide.find("bf16"); at != wide.npos; at = wide.find("bf16")) {
    wide.replace(at, 4, "f32");
  }
  expect_unchanged(wide);
}

class KeepNarrowStepTest : public ::testing::TestWithParam<NormKind> {
 protected:
  void SetUp() override { ops::register_all(); }

  // With norms of queries and keys, which read products in float32; one with biases in these.
  static Program step(const Device& device) {
    ModelConfig model{.vocab = 19, .d_model = 24, .d_ff = 28, .layers = 2, .heads = 3};
    model.norm = GetParam();
    if (GetParam() == NormKind::kLayer) {
      model.activation = Activation::kGelu;
      model.is_gated = false;
      model.norm_bias = model.qkv_bias = model.output_bias = model.ffn_bias = true;
    }
    model.qk_norm = QkNorm::kHead;
    RunSpec run{.verify = true};
    PassContext context;
    run.mode = Mode::kForwardBackward;
    run.executor = ExecutorKind::kArena;
    run.precision.autocast = DType::kBF16;
    run.attention = AttentionForm::kFlash;
    context.has_kernel = [&](const OpDef& op) { return device.has_kernel(op); };
    return run_pipeline(loss_program(model, {.batch = 2, .context = 5}), run, context).program;
  }
};

TEST_P(KeepNarrowStepTest, ItKeepsFewerBytesAndLeavesEveryBit) {
  const auto device = testing::backend_named("cpu").make({.threads = 2, .guarded = true});
  const Program plain = step(*device), program = keep_narrow(plain);
  EXPECT_LT(saved_bytes(program), saved_bytes(plain));
  const Tensors leaves = testing::random_leaves(plain, 0.0, 0.5);
  const Tensors before = testing::run_program(*device, plain, leaves);
  for (const auto& [name, value] : testing::run_program(*device, program, leaves)) {
    EXPECT_EQ(value.bytes, before.at(name).bytes) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, KeepNarrowStepTest,
                         ::testing::Values(NormKind::kLayer, NormKind::kRms));

}  // namespace
}  // namespace tracestep
