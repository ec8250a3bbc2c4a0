// The pass `fuse` as text: what becomes one node, what must not, and that nothing else changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/cost.h"
#include "analysis/saved.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "nn/config.h"
#include "ops/functions.h"
#include "passes/form_passes.h"
#include "passes/kernel_passes.h"
#include "passes/pipeline.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

class FuseTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static Program fused(const std::string& text) {
    Program out = fuse(parse_program(text));
    verify(out);
    return out;
  }
  static std::string text(const Program& program) { return print(program, {.origins = false}); }
  static std::int64_t count(const Program& program, std::string_view op) {
    return std::ranges::count_if(program.nodes, [&](const Node& n) { return n.op->name == op; });
  }
};

TEST_F(FuseTest, AResidualItsNormAndTheCastBehindAreOneNode) {
  const Program out = fused(R"(program "p" {
    input %x : f32[2,3,8]
    input %h : bf16[6,8]
    parameter %w : f32[8]
    %0 : bf16[2,3,8] = reshape(%h) {shape=[2,3,8]} @ mlp forward
    %1 : f32[2,3,8] = cast(%0) {dtype=f32} @ residual forward by autocast
    %2 : f32[2,3,8] = add(%x, %1) @ residual forward
    %3, %4 : f32[2,3,8], f32[2,3] = rms_norm(%2, %w) @ ln forward
    %5 : f32[6,8] = reshape(%3) {shape=[6,8]} @ q forward
    %6 : bf16[6,8] = cast(%5) {dtype=bf16} @ q forward by autocast
    output "residual" = %2
    output "rstd" = %4
    output "normed" = %6
  })");
  EXPECT_EQ(text(out), R"(program "p" {
  input %x : f32[2,3,8]
  input %h : bf16[6,8]
  parameter %w : f32[8]
  %0 : bf16[2,3,8] = reshape(%h) {shape=[2,3,8]}
  %1, %2, %3 : f32[2,3,8], f32[2,3], bf16[6,8] = fused(%0, %x, %w) {body=program "body" {
  input %x0 : bf16[2,3,8]
  input %x1 : f32[2,3,8]
  input %x2 : f32[8]
  %0 : f32[2,3,8] = cast(%x0) {dtype=f32}
  %1 : f32[2,3,8] = add(%x1, %0)
  %2, %3 : f32[2,3,8], f32[2,3] = rms_norm(%1, %x2)
  %4 : f32[6,8] = reshape(%2) {shape=[6,8]}
  %5 : bf16[6,8] = cast(%4) {dtype=bf16}
  output "y0" = %1
  output "y1" = %3
  output "y2" = %5
}
}
  output "residual" = %1
  output "rstd" = %2
  output "normed" = %3
}
)");
  const Node& node = out.nodes[1];
  ASSERT_EQ(node.origins.size(), 3u);
  EXPECT_EQ(node.origin().path, "ln");  // of the op with most to do
  EXPECT_EQ(node.made_by, "fuse");
}

TEST_F(FuseTest, TheNodePutBackInPlaceIsTheProgramItCameFrom) {
  const std::string before = R"(program "p" {
  input %x : f32[4,6]
  input %y : f32[4,6]
  %0 : f32[4,6] = mul(%x, %y) @ a forward
  %1 : f32[4,6] = silu(%0) @ a.act forward
  output "z" = %1
}
)";
  const Program out = fused(before);
  ASSERT_EQ(count(out, "fused"), 1);
  EXPECT_EQ(print(decompose(out, [](const OpDef& op) { return op.name == "fused"; })), before);
}

TEST_F(FuseTest, RotationsOfQAndKWithTheirCastsAreOneNode) {
  std::string text = R"(program "p" {
    input %q : bf16[2,4,3,8]
    input %k : bf16[2,4,3,8]
    %0, %1 : f32[4,4], f32[4,4] = rope_table() {length=4, width=8}
    %2 : bf16[2,3,4,8] = permute(%q) {axes=[0,2,1,3]}
    %3 : f32[2,3,4,8] = cast(%2) {dtype=f32}
    %4 : f32[2,3,4,8] = rope(%3, %0, %1)
    %5 : bf16[2,3,4,8] = cast(%4) {dtype=bf16}
    %6 : bf16[2,3,4,8] = permute(%k) {axes=[0,2,1,3]}
    %7 : f32[2,3,4,8] = cast(%6) {dtype=f32}
    %8 : f32[2,3,4,8] = rope(%7, %0, %1)
    %9 : bf16[2,3,4,8] = cast(%8) {dtype=bf16}
    output "q" = %5
    output "k" = %9
  })";
  const auto expect_one_node = [&] {
    const Program out = fused(text);
    EXPECT_EQ(count(out, "fused"), 1);
    EXPECT_EQ(count(out, "cast") + count(out, "rope"), 0);
  };
  expect_one_node();
  for (const char* call : {"rope(%3, %0, %1)", "rope(%7, %0, %1)"}) {
    text.insert(text.find(call) + std::string_view(call).size(), " {halves=true}");
  }
  expect_one_node();
}

// As behind an adapter: rows are added up, and their heads rotated.
constexpr const char* kRotatedSum = R"(program "p" {
  input %a : bf16[8,24]
  input %b : bf16[8,24]
  %0, %1 : f32[4,4], f32[4,4] = rope_table() {length=4, width=8}
  %2 : bf16[8,24] = add(%a, %b)
  %3 : bf16[2,4,3,8] = reshape(%2) {shape=[2,4,3,8]}
  %4 : bf16[2,3,4,8] = permute(%3) {axes=[0,2,1,3]}
  %5 : f32[2,3,4,8] = cast(%4) {dtype=f32}
  %6 : f32[2,3,4,8] = rope(%5, %0, %1)
  %7 : bf16[2,3,4,8] = cast(%6) {dtype=bf16}
  output "q" = %7
})";

TEST_F(FuseTest, ASumWhoseHeadsAreRotatedIsTakenInHeadByHead) {
  const Program out = fused(kRotatedSum);
  EXPECT_EQ(count(out, "fused"), 1);
  EXPECT_EQ(count(out, "add") + count(out, "cast") + count(out, "rope"), 0);
  EXPECT_EQ(count(out, "permute"), 2) << "of each operand";
  const Program end = materialize(out);
  EXPECT_EQ(count(end, "copy"), 0);
}

TEST_F(FuseTest, ASumThatIsReadElsewhereStaysBeforeItsViews) {
  std::string text = kRotatedSum;
  text.insert(text.rfind('}'), "  output \"sum\" = %2\n");
  const Program out = fused(text);
  EXPECT_EQ(count(out, "fused"), 2) << "the sum with its views, and the rotation";
  EXPECT_EQ(count(out, "permute"), 0);
}

TEST_F(FuseTest, APartOfAnAssemblyIsWrittenThere) {
  const Program end = materialize(fused(R"(program "p" {
    input %a : f32[4,2]
    input %b : f32[4,3]
    %0 : f32[4,2] = affine(%a) {scale=2.0}
    %1 : f32[4,3] = affine(%b) {scale=2.0}
    %2 : f32[4,5] = assemble(%0, %1) {axis=1}
    output "y" = %2
  })"));
  EXPECT_EQ(count(end, "fused"), 2);
  EXPECT_EQ(count(end, "copy") + count(end, "affine"), 0);
}

// A region between the two that fits neither: queries are more than keys and values.
TEST_F(FuseTest, ReadersOfOneValueAreOneNodeInAnyOrder) {
  const Program out = fused(R"(program "p" {
    input %x : f32[4,16]
    %0 : f32[4,4] = slice(%x) {axis=1, start=0, stop=4}
    %1 : f32[4,4] = exp(%0)
    %2 : f32[4,8] = slice(%x) {axis=1, start=8, stop=16}
    %3 : f32[4,8] = neg(%2)
    %4 : f32[4,4] = slice(%x) {axis=1, start=4, stop=8}
    %5 : f32[4,4] = neg(%4)
    output "a" = %1
    output "b" = %3
    output "c" = %5
  })");
  EXPECT_EQ(count(out, "fused"), 1);
  EXPECT_EQ(count(out, "exp"), 0);
  EXPECT_EQ(count(out, "neg"), 1);
}

TEST_F(FuseTest, AResultIsWrittenInTheOrderThatItsReaderWouldCopyInto) {
  const Program out = fused(R"(program "p" {
    input %g : f32[2,3,4,8]
    input %w : f32[24,5]
    %0, %1 : f32[4,4], f32[4,4] = rope_table() {length=4, width=8}
    %2 : f32[2,3,4,8] = rope(%g, %0, %1) {inverse=true}
    %3 : f32[2,4,3,8] = permute(%2) {axes=[0,2,1,3]}
    %4 : f32[8,24] = reshape(%3) {shape=[8,24]}
    %5 : f32[8,5] = matmul(%4, %w)
    output "y" = %5
  })");
  const Program end = materialize(out);
  EXPECT_EQ(count(end, "copy"), 0);
  ASSERT_EQ(count(end, "fused"), 1);
  EXPECT_EQ(count(end, "permute"), 0);
  EXPECT_EQ(launch_count(end), 3);  // the table, the rotation, the product
}

TEST_F(FuseTest, AResultStaysAsItIsWhereItsReaderTakesItsStrides) {
  const Program out = fused(R"(program "p" {
    input %x : f32[4,6]
    input %w : f32[5,4]
    %0 : f32[4,6] = exp(%x)
    %1 : f32[4,6] = neg(%0)
    %2 : f32[6,4] = permute(%1) {axes=[1,0]}
    %3 : f32[6,5] = matmul(%2, %w) {transpose_b=true}
    output "y" = %3
  })");
  EXPECT_EQ(count(out, "fused"), 1);
  EXPECT_EQ(count(out, "permute"), 1);
}

TEST_F(FuseTest, WhatAnotherNodeStandsBetweenIsNotJoined) {
  // %3 needs %2, which needs %0: no order would do for {%0, %1, %3}.
  const Program out = fused(R"(program "p" {
    input %x : f32[4,4]
    %0 : f32[4,4] = exp(%x)
    %1 : f32[4,4] = neg(%0)
    %2 : f32[4,4] = matmul(%0, %x)
    %3 : f32[4,4] = add(%1, %2)
    output "y" = %3
  })");
  EXPECT_EQ(count(out, "fused"), 1);
  EXPECT_EQ(count(out, "matmul"), 1);
  EXPECT_EQ(count(out, "add"), 1);
}

TEST_F(FuseTest, PhasesEpochsAndOtherShapesAreKeptApart) {
  const Program out = fused(R"(program "p" {
    input %x : f32[4,4]
    %0 : f32[4,4] = exp(%x) @ a forward
    %1 : f32[4,4] = neg(%0) @ a backward
    %2 : f32[4,4] = neg(%1) #1 @ a backward
    %3 : f32[2,4,4] = broadcast(%2) {shape=[2,4,4]} @ a backward
    %4 : f32[2,4,4] = exp(%3) @ a backward
    output "y" = %4
  })");
  EXPECT_EQ(count(out, "fused"), 0);
}

TEST_F(FuseTest, ReductionsOfOtherAxesAndSlicesStayOutside) {
  const Program out = fused(R"(program "p" {
    input %x : f32[4,6]
    %0 : f32[4,6] = exp(%x)
    %1 : f32[6] = sum(%0) {axes=[0]}
    %2 : f32[4,6] = neg(%x)
    %3 : f32[4,3] = slice(%2) {axis=1, start=0, stop=3}
    %4 : f32[4,3] = exp(%3)
    output "a" = %1
    output "b" = %4
  })");
  EXPECT_EQ(count(out, "sum"), 1);
  EXPECT_EQ(count(out, "slice"), 1);
}

TEST_F(FuseTest, GradientsAndUpdatesAreLeftAlone) {
  const Program out = fused(R"(program "p" {
    parameter %w : f32[4]
    input %lr : f32[4]
    %0 : bf16[4] = cast(%lr) {dtype=bf16} @ w backward
    %1 : f32[4] !gradient = cast(%0) {dtype=f32} @ w backward
    %2 : f32[4] = mul(%1, %lr) @ w optimizer
    %3 : f32[4] = sub(%w, %2) @ w optimizer
    update %w = %3
  })");
  EXPECT_EQ(count(out, "fused"), 0);
}

TEST_F(FuseTest, AReaderOfAParameterStaysBeforeItsUpdate) {
  const Program out = fused(R"(program "p" {
    parameter %w : f32[4]
    input %x : f32[4]
    %0 : f32[4] = exp(%w)
    %1 : f32[4] = fill() {dtype=f32, shape=[4], value=1.0} @ w optimizer
    %2 : f32[4] = sub(%w, %1) @ w optimizer
    %3 : f32[4] = exp(%2)
    %4 : f32[4] = add(%0, %3)
    update %w = %2
    output "y" = %4
  })");
  EXPECT_EQ(count(out, "exp"), 1);  // %0 cannot wait for %3
  EXPECT_EQ(count(out, "fused"), 1);
}

TEST_F(FuseTest, ARegionThatReadsAParameterComesBeforeTheUpdateBetweenItsNodes) {
  const Program out = fused(R"(program "p" {
    parameter %w : f32[4]
    input %x : f32[4]
    %0 : f32[4] = neg(%w)
    %1 : f32[4] = sub(%w, %x) @ w optimizer
    %2 : f32[4] = exp(%0)
    update %w = %1
    output "y" = %2
  })");
  ASSERT_EQ(out.nodes.size(), 2u);
  EXPECT_EQ(out.nodes[0].op->name, "fused");
  EXPECT_EQ(out.nodes[1].op->name, "sub");
}

TEST_F(FuseTest, AViewOfAnotherPhaseIsNotTakenIn) {
  const Program out = fused(R"(program "p" {
    input %x : f32[4,6]
    %0 : f32[4,6] = exp(%x) @ a forward
    %1 : f32[4,6] = neg(%0) @ a forward
    %2 : f32[6,4] = permute(%1) {axes=[1,0]} @ a backward
    %3 : f32[24] = reshape(%2) {shape=[24]} @ a backward
    output "y" = %3
  })");
  EXPECT_EQ(count(out, "fused"), 1);
  EXPECT_EQ(count(out, "permute"), 1);
}

constexpr const char* kNormGradient = R"(program "p" {{
    input %a : bf16[{0},8]
    input %b : bf16[{0},8]
    input %x : f32[{0},8]
    input %g : f32[{0},8]
    parameter %w : f32[8]
    input %rstd : f32[{0}]
    %0 : f32[{0},8] = cast(%a) {{dtype=f32}} @ w1 backward
    %1 : f32[{0},8] = cast(%b) {{dtype=f32}} @ w3 backward
    %2 : f32[{0},8] = add(%0, %1) @ ln backward
    %3, %4 : f32[{0},8], f32[8] !gradient = rms_norm_grad(%2, %x, %w, %rstd) @ ln backward
    %5 : f32[{0},8] = add(%g, %3) @ residual backward
    %6 : bf16[{0},8] = cast(%5) {{dtype=bf16}} @ residual backward
    output "grad.w" = %4
    output "residual" = %5
    output "low" = %6
  }})";

TEST_F(FuseTest, TheGradientOfANormIsOneNodeAndTheLastSumOverRows) {
  const Program out = fused(fmt::format(kNormGradient, 1024));
  ASSERT_EQ(launch_count(out), 2);
  const Node &body = out.nodes[out.nodes.size() - 2], &sum = out.nodes.back();
  EXPECT_EQ(body.op->name, "fused");
  EXPECT_EQ(sum.op->name, "sum");
  EXPECT_EQ(out.type(sum.inputs[0]).str(), "f32[256,8]");  // a block adds up four rows
  EXPECT_EQ(out.value(sum.outputs[0]).role, Role::kGradient);
  EXPECT_EQ(sum.origin().path, "ln");
}

// The gradient of a bias whose product reads what the gradient of a norm goes into.
TEST_F(FuseTest, ColumnsOfWhatANormsGradientMakesAreSummedByItsBlocks) {
  const auto with_sum_of = [](const char* value, const char* path, int rows) {
    std::string text = fmt::format(kNormGradient, rows);
    text.replace(text.find("    output"), 0,
                 fmt::format("    %7 : f32[8] !gradient = sum({}) {{axes=[0], wide=true}} @ {}\n",
                             value, path));
    return text.replace(text.rfind("  }"), 0, "  output \"grad.b\" = %7\n  ");
  };
  const Program out = materialize(fused(with_sum_of("%6", "w2 backward", 2048)));
  EXPECT_EQ(launch_count(out), 2);
  EXPECT_EQ(count(out, "fused"), 1);
  EXPECT_EQ(count(out, "sum"), 1);  // of weight and bias
  EXPECT_EQ(out.value(out.find_output("grad.b")).role, Role::kGradient);
  // Not fused: sums of another phase, of an operand that no kernel computes, and with few rows.
  EXPECT_EQ(count(fused(with_sum_of("%6", "w2 optimizer", 2048)), "sum"), 2);
  EXPECT_EQ(count(fused(with_sum_of("%b", "w3 backward", 2048)), "sum"), 2);
  EXPECT_EQ(count(fused(with_sum_of("%6", "w2 backward", 1024)), "sum"), 2);
}

TEST_F(FuseTest, ColumnsOfWhatIsComputedElementByElementAreSummedByItsBlocks) {
  const Program out = fused(R"(program "p" {
    input %dy : bf16[4096,24]
    input %x : bf16[4096,24]
    input %w : bf16[4096,3]
    %0 : f32[4096,24] = cast(%dy) {dtype=f32} @ w2 backward
    %1 : f32[4096,24] = cast(%x) {dtype=f32} @ act backward
    %2 : f32[4096,24] = gelu_grad(%0, %1) @ act backward
    %3 : bf16[4096,24] = cast(%2) {dtype=bf16} @ w1 backward
    %4 : f32[24] !gradient = sum(%3) {axes=[0], wide=true} @ w1 backward
    %5 : bf16[3,24] = matmul(%w, %3) {transpose_a=true} @ w1 backward
    output "db" = %4
    output "dw" = %5
  })");
  EXPECT_EQ(launch_count(out), 3);
  EXPECT_EQ(count(out, "fused"), 1);
  const auto sum =
      std::ranges::find_if(out.nodes, [](const Node& n) { return n.op->name == "sum"; });
  ASSERT_NE(sum, out.nodes.end());
  EXPECT_EQ(out.type(sum->inputs[0]).str(), "f32[256,24]");
}

TEST_F(FuseTest, TheGradientOfALayerNormIsOneNodeAndOneSumOverRowsOfWeightAndBias) {
  const Program out = materialize(fused(R"(program "p" {
    input %a : bf16[1024,8]
    input %x : f32[1024,8]
    input %g : f32[1024,8]
    parameter %w : f32[8]
    input %mean : f32[1024]
    input %rstd : f32[1024]
    %0 : f32[1024,8] = cast(%a) {dtype=f32} @ w1 backward
    %1, %2, %3 : f32[1024,8], f32[8] !gradient, f32[8] !gradient = layer_norm_grad(%0, %x, %w, %mean, %rstd) @ ln backward
    %4 : f32[1024,8] = add(%g, %1) @ residual backward
    output "grad.w" = %2
    output "grad.b" = %3
    output "residual" = %4
  })"));
  EXPECT_EQ(launch_count(out), 2);
  EXPECT_EQ(count(out, "fused"), 1);
  EXPECT_EQ(count(out, "sum"), 1);
}

// Two norms, one behind the other, of different widths; `read`: what reads the first gradient
// early.
std::string two_norms(const std::string& read) {
  return fmt::format(R"(program "p" {{
    input %g : f32[1024,8]
    input %x : f32[1024,8]
    input %z : f32[1024,6]
    parameter %w : f32[8]
    parameter %u : f32[6]
    input %rstd : f32[1024]
    input %m : f32[8,6]
    %0, %1 : f32[1024,8], f32[8] !gradient = rms_norm_grad(%g, %x, %w, %rstd) @ ln2 backward
    {}
    %3 : f32[1024,6] = matmul(%0, %m) @ w backward
    %4, %5 : f32[1024,6], f32[6] !gradient = rms_norm_grad(%3, %z, %u, %rstd) @ ln1 backward
    output "grad.w" = %1
    output "grad.u" = %5
    output "dx" = %4
  }})",
                     read);
}

TEST_F(FuseTest, TheLastSumsOverRowsOfAllNormsAreOneLaunch) {
  const Program out = materialize(fused(two_norms("")));
  EXPECT_EQ(launch_count(out), 4);  // two fused nodes, the product, the sum
  ASSERT_EQ(count(out, "sum"), 1);
  const auto sum =
      std::ranges::find_if(out.nodes, [](const Node& n) { return n.op->name == "sum"; });
  EXPECT_EQ(out.type(sum->inputs[0]).str(), "f32[256,14]");
  EXPECT_EQ(out.value(sum->outputs[0]).role, Role::kGradient);
  EXPECT_EQ(out.type(out.find_output("grad.u")).str(), "f32[6]");
  EXPECT_EQ(out.value(out.find_output("grad.u")).layout.offset, 8);
}

TEST_F(FuseTest, ASumThatIsReadBeforeTheLastOneStaysAlone) {
  const std::string early = "%2 : f32[8] = exp(%1) @ x backward\n    output \"early\" = %2";
  EXPECT_EQ(count(materialize(fused(two_norms(early))), "sum"), 2);
}

TEST_F(FuseTest, TheSumOverRanksOfANormsGradientWaitsForTheSumOverRowsOfAll) {
  const std::string carried =
      "%2 : f32[8] !gradient = all_reduce(%1) {ranks=2} @ ln2 communication\n    "
      "output \"summed\" = %2";
  EXPECT_EQ(count(materialize(fused(two_norms(carried))), "sum"), 1);
  const std::string read = carried +
                           "\n    %6 : f32[8] = exp(%2) @ x backward\n    "
                           "output \"early\" = %6";
  EXPECT_EQ(count(materialize(fused(two_norms(read))), "sum"), 2);
}

TEST_F(FuseTest, WithFewRowsTheGradientOfANormKeepsItsKernel) {
  const Program out = fused(fmt::format(kNormGradient, 511));
  EXPECT_EQ(count(out, "rms_norm_grad"), 1);
  EXPECT_EQ(count(out, "fused"), 2);  // what is added up before it and behind it
  EXPECT_EQ(count(out, "sum"), 0);
}

// Whole steps.
PipelineResult step(bool fuse, const char* precision, Granularity ops, AttentionForm attention) {
  RunSpec spec;
  spec.model = preset("tiny");
  spec.precision = parse_precision("test", precision);
  spec.shape = {2, 16};
  spec.mode = Mode::kStep;
  spec.ops = ops;
  spec.attention = attention;
  spec.verify = true;
  spec.compile_passes.emplace();
  if (fuse) spec.compile_passes->insert("fuse");
  return run_pipeline(forward_program(spec), spec, {.has_kernel = [](const OpDef& op) {
                        return !op.is_view() && (op.name == "fused" || !op.always_decompose);
                      }});
}

TEST_F(FuseTest, WhatAStepSavesForBackwardDoesNotChange) {
  for (const char* precision : {"fp32", "bf16", "fp16-pure"}) {
    for (AttentionForm attention : {AttentionForm::kNaive, AttentionForm::kFlash}) {
      const Program plain = step(false, precision, Granularity::kFused, attention).program;
      const Program fused = step(true, precision, Granularity::kFused, attention).program;
      EXPECT_GT(count(fused, "fused"), 0) << precision;
      EXPECT_EQ(saved_bytes(fused), saved_bytes(plain)) << precision;
      EXPECT_LT(total_cost(fused).bytes_read, total_cost(plain).bytes_read) << precision;
      EXPECT_LT(total_cost(fused).bytes_written, total_cost(plain).bytes_written) << precision;
    }
  }
}

TEST_F(FuseTest, AMixedPrecisionLayerNeedsEightFusedNodes) {
  const auto per_layer = [&](bool fuse, const std::vector<std::string>& ops) {
    const Program program = step(fuse, "bf16", Granularity::kFused, AttentionForm::kFlash).program;
    std::int64_t n = 0;
    for (const Node& node : program.nodes) {
      const bool first = node.origin().path.starts_with("layers.1.");
      const bool one_of = std::ranges::count(ops, node.op->name) > 0;
      const bool weight = program.value(node.outputs[0]).role != Role::kNone;
      n += first && one_of && !weight ? 1 : 0;
    }
    return n;
  };
  const std::vector<std::string> small = {"add", "cast", "copy", "rope", "rms_norm"};
  EXPECT_EQ(per_layer(false, {"fused"}), 0);
  EXPECT_EQ(per_layer(true, small), 0);
  EXPECT_EQ(per_layer(true, {"fused"}), 8);
}

TEST_F(FuseTest, APassThatNobodyAskedForDoesNotRun) {
  const PipelineResult out = step(false, "bf16", Granularity::kFused, AttentionForm::kFlash);
  const auto report = std::ranges::find(out.reports, "fuse", &PassReport::name);
  ASSERT_NE(report, out.reports.end());
  EXPECT_FALSE(report->ran);
}

TEST_F(FuseTest, PrimitiveStepsAreFusedToo) {
  const Program plain = step(false, "fp32", Granularity::kPrimitive, AttentionForm::kFlash).program;
  const Program fused = step(true, "fp32", Granularity::kPrimitive, AttentionForm::kFlash).program;
  EXPECT_LT(2 * count(fused, "mul"), count(plain, "mul"));
  EXPECT_EQ(saved_bytes(fused), saved_bytes(plain));
}

}  // namespace
}  // namespace tracestep
