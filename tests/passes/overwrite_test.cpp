// Tests pass `overwrite` on a loss and its gradient, as text and in numbers.
#include "passes/kernel_passes.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/buffer_plan.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "nn/transformer.h"
#include "ops/functions.h"
#include "passes/pipeline.h"
#include "support/backends.h"
#include "support/host_values.h"
#include "support/run_program.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Tensors;

class OverwriteTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static std::string overwritten(const std::string& text) {
    const Program out = overwrite(parse_program(text), [](const OpDef&) { return true; });
    verify(out);
    return print(out, {.origins = false});
  }
};

constexpr const char* kNarrowLogits = R"(program "p" {
  input %x : bf16[4,7]
  input %t : i64[4]
  input %d : f32[]
  %0 : bf16[4,7] = exp(%x)
  %1 : f32[4,7] = cast(%0) {dtype=f32}
  %2, %3 : f32[], f32[4] = cross_entropy(%1, %t) @ loss forward
  %4 : f32[] = affine(%2) {scale=0.5}
  %5 : f32[4,7] = cross_entropy_grad(%d, %1, %t, %3) @ loss backward
  %6 : bf16[4,7] = cast(%5) {dtype=bf16}
  output "loss" = %4
  output "grad" = %6
})";

TEST_F(OverwriteTest, OnlyALossAndAGradientOverTheSameCountAreAPair) {
  std::string text = kNarrowLogits;
  const auto put = [&](const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
  };
  put("  input %d", "  input %n : f32[]\n  input %d");
  put("cross_entropy(%1, %t)", "cross_entropy(%1, %t, %n)");
  EXPECT_THAT(overwritten(text), Not(HasSubstr("with_grad")));
  put("cross_entropy_grad(%d, %1, %t, %3)", "cross_entropy_grad(%d, %1, %t, %3, %n)");
  EXPECT_THAT(overwritten(text), HasSubstr("cross_entropy_with_grad(%d, %0, %t, %n)"));
  put("%3, %n)", "%3, %n) {ignore_index=0}");
  EXPECT_THAT(overwritten(text), Not(HasSubstr("with_grad")));
}

// The loss is read where it is not known yet, and its reader moves.
TEST_F(OverwriteTest, NarrowLogitsAreReadAndOverwrittenAsTheyAre) {
  const std::string text = overwritten(kNarrowLogits);
  EXPECT_THAT(text, HasSubstr("%1, %2 : f32[], bf16[4,7] = cross_entropy_with_grad(%d, %0, %t)\n"
                              "  %3 : f32[] = affine(%1) {scale=0.5}\n"
                              "  output \"loss\" = %3\n"
                              "  output \"grad\" = %2\n"));
  EXPECT_THAT(text, Not(HasSubstr("cast")));
}

TEST_F(OverwriteTest, TheNodeBelongsToBackwardAndToForward) {
  const Program out = overwrite(parse_program(kNarrowLogits), [](const OpDef&) { return true; });
  EXPECT_THAT(print(out), HasSubstr("@ loss backward | loss forward by overwrite"));
}

TEST_F(OverwriteTest, AGradientThatDependsOnTheLossOrIsReadWideStaysWide) {
  std::string scaled_by_loss = kNarrowLogits;
  scaled_by_loss.replace(scaled_by_loss.find("grad(%d"), 7, "grad(%4");
  EXPECT_THAT(overwritten(scaled_by_loss), Not(HasSubstr("with_grad")));
  std::string read_wide = kNarrowLogits;
  read_wide.replace(read_wide.find("output \"grad\" = %6"), 18, "output \"grad\" = %5");
  EXPECT_THAT(overwritten(read_wide),
              HasSubstr("f32[], f32[4,7] = cross_entropy_with_grad(%d, %1, %t)"));
}

TEST_F(OverwriteTest, NothingChangesWhereTheRowSumsAreReadOrThereIsNoKernel) {
  std::string reads_sums = kNarrowLogits;
  reads_sums.replace(reads_sums.find("output \"loss\""), 13,
                     "output \"lse\" = %3\n  output \"loss\"");
  EXPECT_THAT(overwritten(reads_sums), Not(HasSubstr("with_grad")));
  const Program plain = parse_program(kNarrowLogits);
  EXPECT_EQ(overwrite(plain, [](const OpDef&) { return false; }), plain);
}

// --- whole steps --------------------------------------------------------------------------------
Program step(const Device& device, std::optional<DType> low, std::set<std::string> disabled) {
  const ModelConfig model{.vocab = 503, .d_model = 24, .d_ff = 28, .layers = 1, .heads = 3};
  RunSpec run{.verify = true};
  PassContext context;
  run.mode = Mode::kStep;
  run.executor = ExecutorKind::kArena;
  run.precision.autocast = low;
  run.optimizer.loss_scaling.enabled = low == DType::kF16;
  context.has_kernel = [&](const OpDef& op) { return device.has_kernel(op); };
  context.disabled = std::move(disabled);
  return run_pipeline(loss_program(model, {.batch = 2, .context = 40}), run, context).program;
}

// The largest buffer that the step allocates.
std::int64_t largest_buffer_bytes(const Program& program) {
  std::int64_t out = 0;
  for (const Buffer& buffer : plan_buffers(program).buffers) {
    if (buffer.first != kNoNode) out = std::max(out, buffer.bytes);
  }
  return out;
}

TEST_F(OverwriteTest, AStepOnTheCpuHasTheSameBitsWithoutAWideCopyOfTheLogits) {
  for (const std::optional<DType> low :
       {std::optional<DType>(), std::optional(DType::kBF16), std::optional(DType::kF16)}) {
    const auto device = testing::backends_under_test().front().make({.threads = 2});
    ASSERT_EQ(device->traits().kind, DeviceKind::kCpu);
    const Program plain = step(*device, low, {"overwrite"}), program = step(*device, low, {});
    EXPECT_THAT(print(program), HasSubstr("cross_entropy_with_grad"));
    Tensors leaves = testing::random_leaves(plain, 0.0, 0.5);
    std::erase_if(leaves, [](const auto& leaf) { return leaf.first.starts_with("shadow."); });
    const Tensors expected = testing::run_program(*device, plain, leaves);
    for (const auto& [name, value] : testing::run_program(*device, program, leaves)) {
      EXPECT_TRUE(value.bytes == expected.at(name).bytes) << name;
    }
    constexpr std::int64_t kLogits = 2 * 40 * 503;
    EXPECT_EQ(largest_buffer_bytes(plain), 4 * kLogits);
    EXPECT_EQ(largest_buffer_bytes(program), (low ? 2 : 4) * kLogits);
  }
}

}  // namespace
}  // namespace tracestep
