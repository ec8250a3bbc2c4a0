// Tests pass `chunk_ffn` on feed-forwards and their gradients, as text and in numbers.
#include "passes/memory_passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/cost.h"
#include "analysis/memory_map.h"
#include "analysis/plan.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ops/functions.h"
#include "passes/form_passes.h"
#include "passes/kernel_passes.h"
#include "spec/fields.h"
#include "spec/parse_words.h"
#include "spec/step_program.h"
#include "support/backends.h"
#include "support/host_values.h"
#include "support/run_program.h"

namespace tracestep {
namespace {

using testing::Tensors;

Program chunked(const std::string& text, std::int64_t chunks) {
  ops::register_all();
  const Program out = chunk_ffn(parse_program(text), chunks, [](const OpDef&) { return true; });
  verify(out);
  verify(materialize(out), VerifyStage::kMaterialized);
  return out;
}

constexpr const char* kFfn = R"(program "p" {
  input %x : f32[2,3,2]
  input %d : f32[2,3,2]
  parameter %w1 : f32[5,2]
  parameter %w2 : f32[2,5]
  %0 : f32[6,2] = reshape(%x) {shape=[6,2]} @ layers.0.ffn.w1 forward
  %1 : f32[6,5] = matmul(%0, %w1) {transpose_b=true} @ layers.0.ffn.w1 forward
  %2 : f32[6,5] = relu(%1) @ layers.0.ffn.act forward
  %3 : f32[6,2] = matmul(%2, %w2) {transpose_b=true} @ layers.0.ffn.w2 forward
  %4 : f32[2,3,2] = reshape(%3) {shape=[2,3,2]} @ layers.0.ffn.w2 forward
  %5 : f32[6,2] = reshape(%d) {shape=[6,2]} @ layers.0.ffn.w2 backward
  %6 : f32[6,5] = matmul(%5, %w2) @ layers.0.ffn.w2 backward
  %7 : f32[2,5] !gradient = matmul(%5, %2) {transpose_a=true} @ layers.0.ffn.w2 backward
  %8 : f32[6,5] = mul(%6, %2) @ layers.0.ffn.act backward
  %9 : f32[6,2] = matmul(%8, %w1) @ layers.0.ffn.w1 backward
  output "y" = %4
  output "dx" = %9
  output "dw" = %7
})";

// Rows of both axes are cut together; backward reads the chunks of forward.
TEST(ChunkFfnTest, EachChunkIsFinishedBeforeTheNext) {
  EXPECT_EQ(print(chunked(kFfn, 2), {.origins = false}), R"(program "p" {
  input %x : f32[2,3,2]
  input %d : f32[2,3,2]
  parameter %w1 : f32[5,2]
  parameter %w2 : f32[2,5]
  %0 : f32[6,2] = reshape(%x) {shape=[6,2]}
  %1 : f32[3,2] = slice(%0) {axis=0, start=0, stop=3}
  %2 : f32[3,5] = matmul(%1, %w1) {transpose_b=true}
  %3 : f32[3,5] = relu(%2)
  %4 : f32[3,2] = matmul(%3, %w2) {transpose_b=true}
  %5 : f32[3,2] = slice(%0) {axis=0, start=3, stop=6}
  %6 : f32[3,5] = matmul(%5, %w1) {transpose_b=true}
  %7 : f32[3,5] = relu(%6)
  %8 : f32[3,2] = matmul(%7, %w2) {transpose_b=true}
  %9 : f32[6,2] = assemble(%4, %8) {axis=0}
  %10 : f32[2,3,2] = reshape(%9) {shape=[2,3,2]}
  %11 : f32[6,2] = reshape(%d) {shape=[6,2]}
  %12 : f32[3,2] = slice(%11) {axis=0, start=0, stop=3}
  %13 : f32[3,5] = matmul(%12, %w2)
  %14 : f32[2,5] = matmul(%12, %3) {transpose_a=true}
  %15 : f32[3,5] = mul(%13, %3)
  %16 : f32[3,2] = matmul(%15, %w1)
  %17 : f32[3,2] = slice(%11) {axis=0, start=3, stop=6}
  %18 : f32[3,5] = matmul(%17, %w2)
  %19 : f32[2,5] !gradient = matmul_add(%17, %7, %14) {transpose_a=true}
  %20 : f32[3,5] = mul(%18, %7)
  %21 : f32[3,2] = matmul(%20, %w1)
  %22 : f32[6,2] = assemble(%16, %21) {axis=0}
  output "y" = %10
  output "dx" = %22
  output "dw" = %19
}
)");
}

TEST(ChunkFfnTest, FlopsOfProductsStayAndOneChunkIsNone) {
  ops::register_all();
  const Program whole = parse_program(kFfn);
  EXPECT_EQ(gemm_flops(chunked(kFfn, 3)), gemm_flops(whole));
  EXPECT_EQ(chunked(kFfn, 1), whole);
  EXPECT_EQ(chunked(kFfn, 0), whole);  // six rows are too few to be cut by themselves
}

// What another node reads, and what is computed from all rows, is there as a whole.
TEST(ChunkFfnTest, WhatIsReadElsewhereIsAssembledAndWhatWorksOtherwiseIsNotCut) {
  ops::register_all();
  std::string text = kFfn;
  text.replace(text.find("%2 : f32[6,5] = relu(%1)"), 24, "%2 : f32[6,5] = softmax(%1)");
  const auto all = [](const std::string& program, std::int64_t chunks) {
    const Program whole = as_float64(parse_program(program));
    const Tensors leaves = testing::random_leaves(whole, -1.0, 1.0);
    const Tensors expected = testing::reference_values(whole, leaves);
    for (const auto& [name, value] :
         testing::reference_values(as_float64(chunked(program, chunks)), leaves)) {
      const std::vector<double> wanted = testing::to_doubles(expected.at(name));
      EXPECT_LE(testing::max_difference(testing::to_doubles(value), wanted), 1e-12) << name;
    }
  };
  for (const std::int64_t chunks : {2, 4, 6}) {
    all(kFfn, chunks);
    all(text, chunks);
  }
  text = kFfn;
  text.replace(text.find("output \"y\""), 10, "output \"hidden\" = %2\n  output \"y\"");
  all(text, 3);
}

// --- whole steps --------------------------------------------------------------------------------
struct Case {
  const char* name;
  const char* precision = "fp32";
  const char* recompute = "none";
  const char* lora = "none";
  GradientKind gradients = GradientKind::kTransient;
  bool is_gated = true;
};

class ChunkedFfnStepTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { ops::register_all(); }

  static RunSpec spec(std::int64_t chunks, ExecutorKind executor = ExecutorKind::kEager) {
    RunSpec out;
    out.model = {.vocab = 53, .d_model = 24, .d_ff = 128, .layers = 3, .heads = 3};
    if (!GetParam().is_gated) {
      out.model.is_gated = false;
      out.model.activation = Activation::kGelu;
      out.model.ffn_bias = true;
    }
    out.shape = {.batch = 2, .context = 40};
    out.precision = parse_precision("test", GetParam().precision);
    out.mode =
        GetParam().gradients == GradientKind::kTransient ? Mode::kStep : Mode::kForwardBackward;
    out.gradients = GetParam().gradients;
    out.recompute = parse_recomputation("test", GetParam().recompute);
    out.lora = parse_adapters("test", GetParam().lora);
    out.executor = executor;
    out.ffn_chunks = chunks;
    return out;
  }
};

// run_program() also checks that the peak is the predicted one, to the byte.
TEST_P(ChunkedFfnStepTest, ItLeavesTheValuesOfTheWholeStep) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    const auto device = backend.make({.threads = 2, .guarded = true});
    const Program whole = step_program(spec(1), *device);
    const Tensors leaves = testing::random_leaves(whole, 0.0, 0.5);
    const Tensors exact = testing::reference_values(whole, leaves);
    const Tensors expected = testing::run_program(*device, whole, leaves);
    for (ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
      const Program program = step_program(spec(7, executor), *device);
      EXPECT_GE(gemm_flops(program), gemm_flops(whole));
      for (const auto& [name, value] : testing::run_program(*device, program, leaves)) {
        if (name.starts_with("shadow.")) continue;
        SCOPED_TRACE(backend.name + " " + name);
        const std::vector<double> wanted = testing::to_doubles(exact.at(name));
        const double floor =
            testing::max_abs(wanted) * (spec(1).precision.autocast ? 0x1p-6 : 32 * 0x1p-24);
        EXPECT_LE(
            testing::max_difference(testing::to_doubles(value), wanted),
            2.0 * testing::max_difference(testing::to_doubles(expected.at(name)), wanted) + floor);
      }
    }
  }
}

TEST_P(ChunkedFfnStepTest, InFloat64TheyAreTheSameTo1e12) {
  const DeviceTraits cpu{.kind = DeviceKind::kCpu};
  if (spec(1).precision.autocast) return;  // casts stay there
  const Program whole = as_float64(step_program(spec(1), cpu));
  const Tensors leaves = testing::random_leaves(whole, 0.0, 0.5);
  const Tensors expected = testing::reference_values(whole, leaves);
  for (const std::int64_t chunks : {2, 7}) {
    const Program cut = as_float64(step_program(spec(chunks), cpu));
    for (const auto& [name, value] : testing::reference_values(cut, leaves)) {
      const std::vector<double> wanted = testing::to_doubles(expected.at(name));
      EXPECT_LE(testing::max_difference(testing::to_doubles(value), wanted),
                1e-12 * std::max(1.0, testing::max_abs(wanted)))
          << name;
    }
  }
}

// Where blocks run again, no inner tensor of a feed-forward exists as a whole.
TEST_P(ChunkedFfnStepTest, NoBufferHoldsTheInnerTensorAndThePeakFalls) {
  if (std::string_view(GetParam().recompute) == "none") return;
  const DeviceTraits cpu{.kind = DeviceKind::kCpu};
  const auto inner = static_cast<std::int64_t>(
      2 * 40 * 128 * size_of(spec(1).precision.autocast.value_or(spec(1).precision.parameters)));
  const auto largest = [](const Program& program) {
    std::int64_t out = 0;
    for (const Buffer& b : plan_buffers(program).buffers) {
      const bool is_of_ffn = b.first != kNoNode &&
                             program.node(b.first).origin().path.find(".ffn") != std::string::npos;
      if (is_of_ffn) out = std::max(out, b.bytes);
    }
    return out;
  };
  for (ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
    const Program whole = step_program(spec(1, executor), cpu);
    const Program cut = step_program(spec(7, executor), cpu);
    EXPECT_GE(largest(whole), inner);
    EXPECT_LT(largest(cut), inner);
    EXPECT_LT(plan_step(cut, cpu).peak_bytes(), plan_step(whole, cpu).peak_bytes());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Steps, ChunkedFfnStepTest,
    ::testing::Values(Case{"fp32"}, Case{"blocks", "fp32", "blocks"},
                      Case{"nested", "fp32", "nested"}, Case{"bf16", "bf16", "blocks"},
                      Case{"fp16", "fp16", "layers.*.ffn"},
                      Case{"adapters", "bf16", "nested", "r=2,targets=all"},
                      Case{"nf4", "bf16", "blocks", "r=2,targets=all,base=nf4"},
                      Case{"accumulate", "bf16", "blocks", "none", GradientKind::kAccumulate},
                      Case{"biases", "fp32", "blocks", "none", GradientKind::kTransient, false}),
    [](const auto& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace tracestep
