// Tests pass `chunk_loss` on logits and their loss, as text and in numbers.
#include "passes/memory_passes.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/cost.h"
#include "analysis/plan.h"
#include "analysis/saved.h"
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

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Tensors;

Program chunked(const std::string& text, std::int64_t chunks) {
  ops::register_all();
  const Program out = chunk_loss(parse_program(text), chunks, [](const OpDef&) { return true; });
  verify(out);
  verify(materialize(out), VerifyStage::kMaterialized);
  return out;
}

constexpr const char* kLoss = R"(program "p" {
  input %x : f32[6,2]
  parameter %w : f32[5,2]
  input %t : i64[6]
  input %d : f32[]
  %0 : f32[6,5] = matmul(%x, %w) {transpose_b=true} @ head forward
  %1, %2 : f32[], f32[6] = cross_entropy(%0, %t) @ loss forward
  %3 : f32[] = affine(%1) {scale=0.5} @ loss forward
  %4 : f32[6,5] = cross_entropy_grad(%d, %0, %t, %2) @ loss backward
  %5 : f32[6,2] = matmul(%4, %w) @ head backward
  %6 : f32[5,2] !gradient = matmul(%4, %x) {transpose_a=true} @ head backward
  output "loss" = %3
  output "dx" = %5
  output "dw" = %6
})";

// Three rows and four: each chunk has its own share of the mean.
TEST(ChunkLossTest, EachChunkIsFinishedBeforeTheNext) {
  std::string seven = kLoss;
  for (auto at = seven.find("[6"); at != seven.npos; at = seven.find("[6", at)) seven[at + 1] = '7';
  EXPECT_EQ(print(chunked(seven, 2), {.origins = false}), R"(program "p" {
  input %x : f32[7,2]
  parameter %w : f32[5,2]
  input %t : i64[7]
  input %d : f32[]
  %0 : f32[3,2] = slice(%x) {axis=0, start=0, stop=3} #1
  %1 : f32[3,5] = matmul(%0, %w) {transpose_b=true} #1
  %2 : i64[3] = slice(%t) {axis=0, start=0, stop=3} #1
  %3, %4 : f32[], f32[3] = cross_entropy(%1, %2) #1
  %5 : f32[] = affine(%d) {scale=0.42857142857142855}
  %6 : f32[3,5] = cross_entropy_grad(%5, %1, %2, %4)
  %7 : f32[3,2] = matmul(%6, %w)
  %8 : f32[3,2] = slice(%x) {axis=0, start=0, stop=3}
  %9 : f32[5,2] = matmul(%6, %8) {transpose_a=true}
  %10 : f32[4,2] = slice(%x) {axis=0, start=3, stop=7} #2
  %11 : f32[4,5] = matmul(%10, %w) {transpose_b=true} #2
  %12 : i64[4] = slice(%t) {axis=0, start=3, stop=7} #2
  %13, %14 : f32[], f32[4] = cross_entropy(%11, %12) #2
  %15 : f32[] = affine(%d) {scale=0.5714285714285714}
  %16 : f32[4,5] = cross_entropy_grad(%15, %11, %12, %14)
  %17 : f32[4,2] = matmul(%16, %w)
  %18 : f32[4,2] = slice(%x) {axis=0, start=3, stop=7}
  %19 : f32[5,2] !gradient = matmul_add(%16, %18, %9) {transpose_a=true}
  %20 : f32[] = affine(%3) {scale=0.42857142857142855} #2
  %21 : f32[] = affine(%13) {scale=0.5714285714285714} #2
  %22 : f32[] = add(%20, %21) #2
  %23 : f32[7,2] = assemble(%7, %17) {axis=0}
  %24 : f32[] = affine(%22) {scale=0.5}
  output "loss" = %24
  output "dx" = %23
  output "dw" = %19
}
)");
}

TEST(ChunkLossTest, ForwardNodesOfAChunkAreNotSavedForBackward) {
  ops::register_all();
  const Program whole = parse_program(kLoss), cut = chunked(kLoss, 3);
  EXPECT_GT(saved_bytes(whole), 6 * 5 * 4);
  EXPECT_EQ(saved_bytes(cut), 0);
  EXPECT_THAT(print(cut), HasSubstr("#2 @ head forward by chunk_loss"));
  EXPECT_EQ(gemm_flops(cut), gemm_flops(whole));
}

// Narrow gradients are added up in float32, in the state where there is one.
TEST(ChunkLossTest, GradientsOfNarrowProductsGoIntoTheStateThatTheyAreAddedTo) {
  const std::string text = R"(program "p" {
  input %x : bf16[6,2]
  parameter %w : bf16[5,2]
  state %grad.w : f32[5,2] !gradient
  input %t : i64[6]
  input %d : f32[]
  %0 : bf16[6,5] = matmul(%x, %w) {transpose_b=true}
  %1 : bf16[2,3,5] = reshape(%0) {shape=[2,3,5]}
  %2 : bf16[6,5] = reshape(%1) {shape=[6,5]}
  %3 : f32[6,5] = cast(%2) {dtype=f32}
  %4, %5 : f32[], f32[6] = cross_entropy(%3, %t)
  %6 : f32[6,5] = cross_entropy_grad(%d, %3, %t, %5)
  %7 : bf16[6,5] = cast(%6) {dtype=bf16}
  %8 : bf16[5,2] = matmul(%7, %x) {transpose_a=true}
  %9 : f32[5,2] = cast(%8) {dtype=f32}
  %10 : f32[5,2] = add(%grad.w, %9)
  update %grad.w = %10
  output "loss" = %4
})";
  const std::string out = print(chunked(text, 2), {.origins = false});
  EXPECT_THAT(out, HasSubstr("%10 : f32[5,2] = matmul_add(%8, %9, %grad.w) {transpose_a=true}"));
  EXPECT_THAT(out, HasSubstr("%21 : f32[5,2] = matmul_add(%19, %20, %10) {transpose_a=true}"));
  EXPECT_THAT(out, HasSubstr("update %grad.w = %21"));
  EXPECT_THAT(out, Not(HasSubstr("[6,5]")));
}

TEST(ChunkLossTest, TheLossAloneIsCutWhereThereIsNoGradient) {
  const std::string out = print(chunked(R"(program "p" {
  input %x : f32[6,2]
  parameter %w : f32[5,2]
  input %t : i64[6]
  %0 : f32[6,5] = matmul(%x, %w) {transpose_b=true}
  %1, %2 : f32[], f32[6] = cross_entropy(%0, %t)
  output "loss" = %1
})",
                                        3),
                                {.origins = false});
  EXPECT_THAT(out, HasSubstr("%12 : f32[2,5] = matmul(%11, %w) {transpose_b=true}"));
  EXPECT_THAT(out, HasSubstr("affine(%16) {scale=0.3333333333333333}"));
}

// Sums over chunks that are divided by one count are added, whatever rows each has left out.
TEST(ChunkLossTest, ChunksOfALossWithIgnoredTargetsAddUp) {
  std::string text = kLoss;
  const auto put = [&](const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
  };
  put("  input %d : f32[]\n", "  input %d : f32[]\n  input %n : f32[]\n");
  put("cross_entropy(%0, %t)", "cross_entropy(%0, %t, %n) {ignore_index=1}");
  put("cross_entropy_grad(%d, %0, %t, %2)",
      "cross_entropy_grad(%d, %0, %t, %2, %n) {ignore_index=1}");
  const Program cut = chunked(text, 3);
  EXPECT_THAT(print(cut, {.origins = false}), Not(HasSubstr("affine(%d)")));
  const Program whole = as_float64(parse_program(text));
  Tensors leaves = testing::random_leaves(whole, -1.0, 1.0);
  const std::int64_t targets[] = {1, 1, 0, 4, 1, 2};  // none of the first chunk counts
  const double count[] = {3.0};
  leaves.at("t") = HostTensor::of<std::int64_t>(DType::kI64, {6}, targets);
  leaves.at("n") = HostTensor::of<double>(DType::kF64, {}, count);
  const Tensors expected = testing::reference_values(whole, leaves);
  for (const auto& [name, value] : testing::reference_values(as_float64(cut), leaves)) {
    const std::vector<double> wanted = testing::to_doubles(expected.at(name));
    EXPECT_LE(testing::max_difference(testing::to_doubles(value), wanted), 1e-14) << name;
  }
}

TEST(ChunkLossTest, LogitsThatSomethingElseReadsAreNotCut) {
  const auto unchanged = [](std::string text, const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
    EXPECT_EQ(chunked(text, 2), parse_program(text)) << text;
  };
  ops::register_all();
  unchanged(kLoss, "output \"loss\" = %3", "output \"loss\" = %3\n  output \"logits\" = %0");
  unchanged(kLoss, "output \"loss\" = %3", "output \"loss\" = %3\n  output \"sums\" = %2");
  unchanged(kLoss, "output \"loss\" = %3", "output \"loss\" = %3\n  output \"dlogits\" = %4");
  unchanged(kLoss, "cross_entropy_grad(%d", "cross_entropy_grad(%3");
  unchanged(kLoss, "%0 : f32[6,5] = matmul(%x, %w) {transpose_b=true}",
            "%0 : f32[6,5] = broadcast(%d) {shape=[6,5]}");
}

TEST(ChunkLossTest, ByDefaultChunksHave1024RowsAtLeastAndLogitsAsLargeAsTheRows) {
  EXPECT_EQ(default_loss_chunks(512, 768, 10000), 1);
  EXPECT_EQ(default_loss_chunks(4096, 768, 10000), 4);
  EXPECT_EQ(default_loss_chunks(16384, 768, 10000), 13);
  EXPECT_EQ(default_loss_chunks(16384, 2560, 10000), 3);
  EXPECT_EQ(default_loss_chunks(16384, 2560, 1000), 1);
}

// --- whole steps --------------------------------------------------------------------------------
struct Case {
  const char* name;
  const char* precision = "fp32";
  Mode mode = Mode::kStep;
  GradientKind gradients = GradientKind::kTransient;
  const char* recompute = "none";
};

class ChunkedStepTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { ops::register_all(); }

  static RunSpec spec(std::int64_t chunks, ExecutorKind executor = ExecutorKind::kEager) {
    RunSpec out;
    out.model = {.vocab = 503, .d_model = 24, .d_ff = 28, .layers = 1, .heads = 3};
    out.shape = {.batch = 2, .context = 40};
    out.precision = parse_precision("test", GetParam().precision);
    out.mode = GetParam().mode;
    out.gradients = GetParam().gradients;
    out.recompute = parse_recomputation("test", GetParam().recompute);
    out.executor = executor;
    out.loss_chunks = chunks;
    return out;
  }
};

// run_program() also checks that the peak is the predicted one, to the byte.
TEST_P(ChunkedStepTest, ItLeavesTheValuesOfTheWholeStep) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    const auto device = backend.make({.threads = 2, .guarded = true});
    const Program whole = step_program(spec(1), *device);
    Tensors leaves = testing::random_leaves(whole, 0.0, 0.5);
    const Tensors exact = testing::reference_values(whole, leaves);
    const Tensors expected = testing::run_program(*device, whole, leaves);
    for (ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
      const Program program = step_program(spec(7, executor), *device);
      EXPECT_GE(gemm_flops(program), gemm_flops(whole));
      for (const auto& [name, value] : testing::run_program(*device, program, leaves)) {
        if (name.starts_with("shadow.") || name.starts_with("saved.")) continue;
        SCOPED_TRACE(backend.name + " " + name);
        const std::vector<double> wanted = testing::to_doubles(exact.at(name));
        const double largest = testing::max_abs(wanted);
        const double floor =
            largest *
            (spec(1).precision.autocast || is_low_precision(value.dtype) ? 0x1p-7 : 16 * 0x1p-24);
        EXPECT_LE(
            testing::max_difference(testing::to_doubles(value), wanted),
            2.0 * testing::max_difference(testing::to_doubles(expected.at(name)), wanted) + floor);
      }
    }
  }
}

std::int64_t largest_buffer_bytes(const Program& program) {
  std::int64_t out = 0;
  for (const Buffer& buffer : plan_buffers(program).buffers) {
    if (buffer.first != kNoNode) out = std::max(out, buffer.bytes);
  }
  return out;
}

TEST_P(ChunkedStepTest, NoBufferHoldsTheLogitsAndThePeakFalls) {
  const DeviceTraits cpu{.kind = DeviceKind::kCpu};
  for (ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
    const Program whole = step_program(spec(1, executor), cpu);
    const Program cut = step_program(spec(7, executor), cpu);
    const auto logits = static_cast<std::int64_t>(
        2 * 40 * 503 * size_of(spec(1).precision.autocast.value_or(spec(1).precision.parameters)));
    EXPECT_GE(largest_buffer_bytes(whole), logits);
    EXPECT_LT(largest_buffer_bytes(cut), logits);
    EXPECT_LT(plan_step(cut, cpu).peak_bytes(), plan_step(whole, cpu).peak_bytes());
    EXPECT_LE(saved_bytes(cut), saved_bytes(whole));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Steps, ChunkedStepTest,
    ::testing::Values(Case{"fp32"}, Case{"bf16", "bf16"}, Case{"fp16", "fp16"},
                      Case{"bf16_pure", "bf16-pure"}, Case{"forward", "bf16", Mode::kForward},
                      Case{"forward_backward", "bf16", Mode::kForwardBackward},
                      Case{"accumulate", "bf16", Mode::kForwardBackward, GradientKind::kAccumulate},
                      Case{"persistent", "fp32", Mode::kForwardBackward, GradientKind::kPersistent},
                      Case{"blocks", "fp32", Mode::kStep, GradientKind::kTransient, "blocks"},
                      Case{"head", "bf16", Mode::kStep, GradientKind::kTransient, "lm_head"}),
    [](const auto& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace tracestep
