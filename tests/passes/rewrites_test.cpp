// Passes as text: a program in, the expected program out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/buffer_plan.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ops/functions.h"
#include "passes/form_passes.h"
#include "passes/kernel_passes.h"
#include "passes/memory_passes.h"
#include "passes/optimizer.h"
#include "passes/pipeline.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class RewritesTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static std::string text(const Program& program) {
    verify(program);
    return print(program, {.origins = false});
  }
};

TEST_F(RewritesTest, SimplifyMergesEqualNodesOfOnePhaseOnly) {
  const Program out = simplify(parse_program(R"(program "p" {
    parameter %x : f32[4]
    %0 : f32[4] = exp(%x) @ a forward
    %1 : f32[4] = exp(%x) @ b forward
    %2 : f32[4] = exp(%x) @ c backward
    %3 : f32[4] = add(%0, %1) @ d backward
    %4 : f32[4] = add(%3, %2) @ d backward
    output "y" = %4
  })"));
  EXPECT_EQ(text(out), R"(program "p" {
  parameter %x : f32[4]
  %0 : f32[4] = exp(%x)
  %1 : f32[4] = exp(%x)
  %2 : f32[4] = add(%0, %0)
  %3 : f32[4] = add(%2, %1)
  output "y" = %3
}
)");
}

TEST_F(RewritesTest, SimplifyNeverMergesAcrossEpochs) {
  const Program out = simplify(parse_program(R"(program "p" {
    parameter %x : f32[4]
    %0 : f32[4] = exp(%x)
    %1 : f32[4] = exp(%x) #1
    %2 : f32[4] = add(%0, %1)
    output "y" = %2
  })"));
  EXPECT_EQ(out.nodes.size(), 3u);
}

TEST_F(RewritesTest, SimplifyDropsIdentitiesAndDeadCode) {
  const Program out = simplify(parse_program(R"(program "p" {
    parameter %x : f32[2,3]
    %0 : f32[3,2] = permute(%x) {axes=[1,0]}
    %1 : f32[2,3] = permute(%0) {axes=[1,0]}
    %2 : f32[2,3] = cast(%1) {dtype=f32}
    %3 : f32[2,3] = affine(%2)
    %4 : f32[2,3] = exp(%x)
    %5 : f32[2,3] = neg(%3)
    output "y" = %5
  })"));
  EXPECT_EQ(text(out), R"(program "p" {
  parameter %x : f32[2,3]
  %0 : f32[2,3] = neg(%x)
  output "y" = %0
}
)");
}

TEST_F(RewritesTest, MaterializeCopiesWhatCannotBeWrittenIntoAnAssembly) {
  const Program out = materialize(parse_program(R"(program "p" {
    input %x : f32[4,3]
    input %y : f32[2,6]
    %0 : f32[4,3] = exp(%x)
    %1 : f32[4,3] = copy(%x)
    %2 : f32[4,3] = copy(%x)
    %3 : f32[2,6] = copy(%y)
    %4 : f32[4,3] = reshape(%3) {shape=[4,3]}
    %5 : f32[4,15] = assemble(%0, %1, %2, %4, %x) {axis=1}
    output "y" = %5
    output "read elsewhere" = %2
  })"));
  verify(out, VerifyStage::kMaterialized);
  // exp writes dense results, %2 is read elsewhere, [2,6] has no strides there, %x is a leaf.
  EXPECT_EQ(text(out), R"(program "p" {
  input %x : f32[4,3]
  input %y : f32[2,6]
  %0 : f32[4,3] = exp(%x)
  %1 : f32[4,3] = copy(%x)
  %2 : f32[4,3] = copy(%x)
  %3 : f32[2,6] = copy(%y)
  %4 : f32[4,3] = reshape(%3) {shape=[4,3]}
  %5 : f32[4,3] = copy(%0)
  %6 : f32[4,3] = copy(%2)
  %7 : f32[4,3] = copy(%4)
  %8 : f32[4,3] = copy(%x)
  %9 : f32[4,15] = assemble(%5, %1, %6, %7, %8) {axis=1}
  output "y" = %9
  output "read elsewhere" = %2
}
)");
}

TEST_F(RewritesTest, MaterializeCopiesWhatAViewOrAKernelCannotTake) {
  const Program before = parse_program(R"(program "p" {
    parameter %x : f32[2,3]
    parameter %w : f32[2]
    %0 : f32[3,2] = permute(%x) {axes=[1,0]}
    %1 : f32[6] = reshape(%0) {shape=[6]}
    %2, %3 : f32[3,2], f32[3] = rms_norm(%0, %w)
    output "flat" = %1
    output "normed" = %2
  })");
  EXPECT_THROW(verify(before, VerifyStage::kMaterialized), std::logic_error);
  const Program out = materialize(before);
  verify(out, VerifyStage::kMaterialized);
  EXPECT_EQ(text(out), R"(program "p" {
  parameter %x : f32[2,3]
  parameter %w : f32[2]
  %0 : f32[3,2] = permute(%x) {axes=[1,0]}
  %1 : f32[3,2] = copy(%0)
  %2 : f32[6] = reshape(%1) {shape=[6]}
  %3, %4 : f32[3,2], f32[3] = rms_norm(%1, %w)
  output "flat" = %2
  output "normed" = %3
}
)");
}

TEST_F(RewritesTest, MaterializeAssignsAnUpdateThatIsNotInPlace) {
  const Program out = materialize(parse_program(R"(program "p" {
    parameter %x : f32[4]
    input %y : f32[4]
    %0 : f32[4] = neg(%y)
    update %x = %0
    output "y" = %0
  })"));
  EXPECT_THAT(text(out), HasSubstr("assign(%x, %0)"));
  EXPECT_TRUE(updates_out_of_place(out, plan_buffers(out)).empty());
  const Program in_place = materialize(parse_program(R"(program "p" {
    parameter %x : f32[4]
    %0 : f32[4] = neg(%x)
    update %x = %0
  })"));
  EXPECT_THAT(text(in_place), Not(HasSubstr("assign")));
}

TEST_F(RewritesTest, ScheduleMakesConstantsDirectlyBeforeTheirFirstReader) {
  const Program out = schedule(parse_program(R"(program "p" {
    parameter %x : f32[4]
    %0 : f32[] = fill() {dtype=f32, shape=[], value=2.0}
    %1 : f32[4] = broadcast(%0) {shape=[4]}
    %2 : f32[4] = exp(%x)
    %3 : f32[4] = mul(%2, %1)
    output "y" = %3
  })"));
  EXPECT_EQ(out.nodes[0].op->name, "exp");
  EXPECT_EQ(out.nodes[1].op->name, "fill");
}

TEST_F(RewritesTest, DecomposeExpandsUntilOnlyWantedOpsAreLeft) {
  const Program out = decompose(parse_program(R"(program "p" {
    parameter %q : f32[2,4,8]
    %0 : f32[2,4,8] = attention(%q, %q, %q) {scale=0.5} @ attn forward
    output "y" = %0
  })"),
                                [](const OpDef&) { return true; });
  EXPECT_THAT(text(out), Not(HasSubstr("softmax")));
  EXPECT_THAT(print(out), HasSubstr("@ attn.softmax forward by decompose"));
}

TEST_F(RewritesTest, AFusedNodeIsInlinedWithItsBody) {
  const std::string body = R"(program "p" {
    parameter %x : f32[4]
    %0 : f32[4] = fused(%x, %x) {body=program "b" {
      input %a : f32[4]
      input %b : f32[4]
      %0 : f32[4] = mul(%a, %b)
      %1 : f32[4] = exp(%0)
      output "y" = %1
    }} @ mlp forward
    output "y" = %0
  })";
  const Program out = decompose(parse_program(body), [](const OpDef&) { return true; });
  EXPECT_EQ(text(out), R"(program "p" {
  parameter %x : f32[4]
  %0 : f32[4] = mul(%x, %x)
  %1 : f32[4] = exp(%0)
  output "y" = %1
}
)");
}

TEST_F(RewritesTest, OptimizerTurnsGradientOutputsIntoUpdates) {
  const Program program = parse_program(R"(program "p" {
    parameter %w.weight : f32[4]
    %0 : f32[4] = exp(%w.weight)
    output "grad.w.weight" = %0
  })");
  const Program adamw = optimizer(program, {.clip = 1.0});
  EXPECT_THAT(text(adamw), HasSubstr("adamw(%w.weight, %0, %adamw.m.w.weight"));
  EXPECT_EQ(adamw.find_output("grad.w.weight"), kNoValue);
  EXPECT_NE(adamw.find_output("grad_norm"), kNoValue);
  EXPECT_EQ(adamw.updates.size(), 3u);
  const Program sgd = optimizer(program, {.kind = OptimizerKind::kSgd});
  verify(materialize(sgd), VerifyStage::kMaterialized);
  EXPECT_EQ(sgd.updates.size(), 1u);
}

TEST_F(RewritesTest, OptimizerReadsTheNewValueOfAPersistentGradient) {
  const Program program = parse_program(R"(program "p" {
    parameter %w : f32[4]
    %0 : f32[4] = square(%w)
    %1 : f32[] = sum(%0) {axes=[0]}
    output "loss" = %1
  })");
  RunSpec run{.verify = true};
  run.mode = Mode::kStep;
  run.gradients = GradientKind::kPersistent;
  const Program out = run_pipeline(program, run).program;
  verify(out, VerifyStage::kMaterialized);
  EXPECT_EQ(out.updates.size(), 4u) << "gradient, parameter and both moments";
}

TEST_F(RewritesTest, KeepSavedHoldsWhatBackwardWouldRead) {
  const Program out = keep_saved(parse_program(R"(program "p" {
    parameter %x : f32[4]
    %0 : f32[4] = exp(%x) @ a forward
    %1 : f32[4] = neg(%0) @ b forward
    %2 : f32[] = sum(%1) {axes=[0]} @ loss forward
    %3 : f32[4] = mul(%0, %x) @ a backward
    output "loss" = %2
    output "grad.x" = %3
  })"));
  EXPECT_EQ(text(out), R"(program "p" {
  parameter %x : f32[4]
  %0 : f32[4] = exp(%x)
  %1 : f32[4] = neg(%0)
  %2 : f32[] = sum(%1) {axes=[0]}
  output "loss" = %2
  output "saved.0" = %0
}
)");
}

TEST_F(RewritesTest, KeepSavedKeepsALossThatRanksSum) {
  const std::string out = text(keep_saved(parse_program(R"(program "p" {
    parameter %x : f32[4]
    %0 : f32[] = sum(%x) {axes=[0]} @ loss forward
    %1 : f32[] = all_reduce(%0) {ranks=2} @ loss communication
    %2 : f32[4] = exp(%x) @ a backward
    %3 : f32[4] = all_reduce(%2) {ranks=2} @ x communication
    output "loss" = %1
    output "grad.x" = %3
  })")));
  EXPECT_THAT(out, HasSubstr("output \"loss\" = %1"));
  EXPECT_THAT(out, Not(HasSubstr("grad.x")));
}

TEST_F(RewritesTest, ThePipelineSaysHonestlyWhichPassChangedSomething) {
  const Program program = parse_program(R"(program "p" {
    input %x : f32[4]
    %0 : f32[4] = exp(%x)
    output "y" = %0
  })");
  const PipelineResult out = run_pipeline(program, {.mode = Mode::kInference, .verify = true});
  for (const PassReport& report : out.reports) EXPECT_FALSE(report.changed) << report.name;
  EXPECT_TRUE(out.program == program);
}

TEST_F(RewritesTest, APassCanBeSwitchedOffAndAnUnknownOneIsNamed) {
  const Program program = parse_program(R"(program "p" {
    input %x : f32[4]
    %0 : f32[4] = silu(%x)
    output "y" = %0
  })");
  RunSpec run{.mode = Mode::kInference, .verify = true};
  PassContext context;
  run.ops = Granularity::kPrimitive;
  EXPECT_THAT(text(run_pipeline(program, run, context).program), Not(HasSubstr("silu")));
  context.disabled = {"decompose", "lower"};
  EXPECT_THAT(text(run_pipeline(program, run, context).program), HasSubstr("silu"));
  context.disabled = {"simplfy"};
  try {
    run_pipeline(program, run, context);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("did you mean 'simplify'?"));
  }
}

}  // namespace
}  // namespace tracestep
