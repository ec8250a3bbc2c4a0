// Tests recomputation in backward as text, and where in the program it stands.
#include "passes/recompute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/memory_map.h"
#include "analysis/saved.h"
#include "base/error.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "nn/transformer.h"
#include "ops/functions.h"
#include "passes/memory_passes.h"
#include "passes/pipeline.h"
#include "spec/parse_words.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;

class RecomputeTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
};

Program recomputed(const Program& program, const std::string& choice) {
  Program out = recompute(program, parse_recomputation("test", choice));
  verify(out);
  return out;
}

// Blocks of an exponential, which backward reads, and a negation, which it does not; then a head.
std::string chain(int blocks) {
  std::string out = "program \"chain\" {\n  parameter %x : f32[4]\n";
  std::string last = "%x";
  int next = 0;
  for (int b = 0; b < blocks; ++b) {
    out += fmt::format("  %{} : f32[4] = exp({}) @ layers.{} forward\n", next, last, b);
    out += fmt::format("  %{} : f32[4] = neg(%{}) @ layers.{} forward\n", next + 1, next, b);
    last = fmt::format("%{}", next + 1);
    next += 2;
  }
  out += fmt::format("  %{} : f32[4] = exp({}) @ head forward\n", next, last);
  last = fmt::format("%{}", next++);
  for (int b = blocks; b-- > 0;) {
    out +=
        fmt::format("  %{} : f32[4] = mul({}, %{}) @ layers.{} backward\n", next, last, 2 * b, b);
    last = fmt::format("%{}", next++);
  }
  return out + fmt::format("  output \"y\" = {}\n}}", last);
}

std::string again_of(const Program& program) {
  std::string out;
  for (const Node& node : program.nodes) {
    if (node.origin().phase == Phase::kBackward) out += "| ";
    if (node.origin().phase != Phase::kRecompute) continue;
    out += fmt::format("{} {} #{} ", node.origin().path, node.op->name, node.epoch);
    EXPECT_EQ(node.made_by, "recompute");
  }
  return out;
}

TEST_F(RecomputeTest, TheInsideOfABlockIsComputedAgainBeforeItsFirstReader) {
  EXPECT_EQ(print(recomputed(parse_program(chain(2)), "blocks")), R"(program "chain" {
  parameter %x : f32[4]
  %0 : f32[4] = exp(%x) @ layers.0 forward
  %1 : f32[4] = neg(%0) @ layers.0 forward
  %2 : f32[4] = exp(%1) @ layers.1 forward
  %3 : f32[4] = neg(%2) @ layers.1 forward
  %4 : f32[4] = exp(%3) @ head forward
  %5 : f32[4] = exp(%1) #2 @ layers.1 recompute by recompute
  %6 : f32[4] = mul(%4, %5) @ layers.1 backward
  %7 : f32[4] = exp(%x) #1 @ layers.0 recompute by recompute
  %8 : f32[4] = mul(%6, %7) @ layers.0 backward
  output "y" = %8
}
)");
}

TEST_F(RecomputeTest, AGroupOfBlocksKeepsOnlyItsInput) {
  const Program out = recomputed(parse_program(chain(4)), "every=2");
  EXPECT_EQ(again_of(out),
            "layers.2 exp #2 layers.2 neg #2 layers.3 exp #2 | | "
            "layers.0 exp #1 layers.0 neg #1 layers.1 exp #1 | | ");
  EXPECT_EQ(saved_for_backward(out).size(), 2U);  // the input of block 2, and the head's result
}

TEST_F(RecomputeTest, NestedHalvingRunsEveryBlockForEachLevel) {
  const Program out = recomputed(parse_program(chain(4)), "nested");
  EXPECT_EQ(again_of(out),
            // The input of block 2 from that of block 0, and of block 3 from that of block 2.
            "layers.0 exp #1 layers.0 neg #1 layers.1 exp #1 layers.1 neg #1 "
            "layers.2 exp #2 layers.2 neg #2 "
            "layers.3 exp #3 | layers.2 exp #4 | "
            "layers.0 exp #5 layers.0 neg #5 layers.1 exp #6 | layers.0 exp #7 | ");
  EXPECT_EQ(saved_for_backward(out).size(), 1U);
}

TEST_F(RecomputeTest, APathTakesThePartsUnderIt) {
  EXPECT_EQ(again_of(recomputed(parse_program(chain(3)), "layers.1")), "| layers.1 exp #1 | | ");
  try {
    recomputed(parse_program(chain(3)), "layer.1");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.what(),
                HasSubstr("the model has no part 'layer.1'; did you mean 'layers.1'?"));
  }
}

TEST_F(RecomputeTest, SingleNodesAreComputedAgainFromWhatIsKept) {
  const Program program = parse_program(chain(3));
  std::vector<bool> again(program.nodes.size(), false);
  again[2] = again[3] = again[4] = true;  // block 1, and the exponential of block 2
  const Program out = recompute_nodes(program, again);
  verify(out);
  EXPECT_EQ(again_of(out), "layers.1 exp #1 layers.1 neg #1 layers.2 exp #1 | | | ");
}

TEST_F(RecomputeTest, ConstantsAreMadeAgainForEachPart) {
  const Program out = recomputed(parse_program(R"(program "p" {
    parameter %x : f32[4]
    %0 : f32[4] = fill() {dtype=f32, shape=[4], value=2.0} @ table forward
    %1 : f32[4] = mul(%x, %0) @ layers.0 forward
    %2 : f32[4] = mul(%1, %0) @ layers.1 forward
    %3 : f32[4] = exp(%2) @ head forward
    %4 : f32[4] = mul(%3, %0) @ layers.1 backward
    %5 : f32[4] = mul(%4, %0) @ layers.0 backward
    output "y" = %5
  })"),
                                 "blocks");
  EXPECT_EQ(again_of(out), "table fill #2 | table fill #1 | ");
}

Program step_of(const std::string& choice, Granularity ops, Mode mode = Mode::kStep,
                std::optional<DType> autocast = {}, const std::string& stop_after = {}) {
  RunSpec run{.verify = true};
  PassContext context;
  run.mode = mode;
  run.ops = ops;
  run.precision.autocast = autocast;
  run.recompute = parse_recomputation("test", choice);
  context.stop_after = stop_after;
  const ModelConfig model{.vocab = 19, .d_model = 24, .d_ff = 28, .layers = 4, .heads = 3};
  return run_pipeline(loss_program(model, {.batch = 2, .context = 16}), run, context).program;
}

TEST_F(RecomputeTest, NoLaterMergeUndoesIt) {
  for (const char* choice : {"blocks", "every=2", "nested", "layers.*.ffn+layers.*.attn"}) {
    for (Granularity ops : kAllGranularities) {
      const Program out = step_of(choice, ops, Mode::kStep, DType::kBF16, "recompute");
      EXPECT_EQ(print(simplify(out)), print(out)) << choice;
    }
  }
}

std::int64_t peak_of(const Program& program) {
  return predicted_peak_bytes(program, plan_buffers(program), {});
}

TEST_F(RecomputeTest, ThePeakFallsAndEachFormKeepsLess) {
  for (Granularity ops : kAllGranularities) {
    for (Mode mode : {Mode::kForwardBackward, Mode::kStep}) {
      const Program none = step_of("none", ops, mode), ffn = step_of("layers.*.ffn", ops, mode),
                    blocks = step_of("blocks", ops, mode);
      EXPECT_LT(peak_of(blocks), peak_of(none));
      EXPECT_LT(saved_bytes(ffn), saved_bytes(none));
      EXPECT_LT(saved_bytes(blocks), saved_bytes(ffn));
      EXPECT_LT(saved_bytes(step_of("every=2", ops, mode)), saved_bytes(blocks));
      EXPECT_LT(saved_bytes(step_of("nested", ops, mode)),
                saved_bytes(step_of("every=2", ops, mode)));
    }
  }
}

TEST_F(RecomputeTest, ForwardAloneKeepsWhatTheChoiceKeeps) {
  for (Granularity ops : kAllGranularities) {
    for (const char* choice : {"none", "blocks", "nested"}) {
      EXPECT_EQ(saved_bytes(step_of(choice, ops, Mode::kForward)),
                saved_bytes(step_of(choice, ops, Mode::kForwardBackward)))
          << choice;
    }
  }
}

TEST_F(RecomputeTest, NarrowCopiesOfWeightsAreMadeAgainAndKeepTheirRole) {
  const Program out = step_of("blocks", Granularity::kFused, Mode::kStep, DType::kBF16);
  int again = 0;
  for (const Node& node : out.nodes) {
    if (node.origin().phase != Phase::kRecompute) continue;
    again += out.value(node.outputs[0]).role == Role::kWeightCast ? 1 : 0;
  }
  EXPECT_EQ(again, 4 * 7);
}

}  // namespace
}  // namespace tracestep
