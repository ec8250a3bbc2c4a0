// The text form of programs: what is printed can be read back, and what cannot be read is refused
// with its place.
#include <gtest/gtest.h>

#include <limits>

#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ops/functions.h"
#include "passes/form_passes.h"

namespace tracestep {
namespace {

class TextFormTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
};

// Every kind of line: leaves of all kinds and roles, views, several results, epochs, origins, a
// pass, updates and outputs.
TEST_F(TextFormTest, AHandWrittenStepIsReadPrintedAndReadAgain) {
  const std::string text = R"(program "a \"step\"" {
  input %tokens : i64[2,3]
  parameter %w.0 : f32[5,4]
  parameter %w.1 : f32[5,4] in "w \"1\"" at 20 of 40
  state %m : f32[5,4] !optimizer_state
  state %cache : bf16[2,8] !cache
  state %moved : f32[8] !optimizer_state in "moved" at 0 of 8 on host
  %0 : f32[2,3,4] = gather(%w.0, %tokens) @ embedding forward
  %1 : f32[6,4] = reshape(%0) {shape=[6,4]} @ . forward
  %2 : f32[4] = fill() {dtype=f32, shape=[4], value=1.0} @ norm forward
  %3, %4 : f32[6,4], f32[6] = rms_norm(%1, %2) {eps=0.001} @ norm forward
  %5 : f32[6] = log_sum_exp(%3) #2 @ loss backward | head forward by checkpoint
  %6 : f32[] = sum(%5) {axes=[0]} @ loss forward
  %7 : f32[5,4] !gradient = affine(%m) {scale=-0.5} @ . optimizer by optimizer
  update %m = %7
  output "loss" = %6
}
)";
  const Program program = parse_program(text);
  verify(program);
  EXPECT_EQ(print(program), text);
  EXPECT_TRUE(parse_program(print(program)) == program);
  EXPECT_EQ(program.name, "a \"step\"");
  EXPECT_EQ(program.nodes[4].epoch, 2);
  EXPECT_EQ(program.nodes[4].origins.size(), 2u);
  EXPECT_EQ(program.nodes[4].made_by, "checkpoint");
  EXPECT_EQ(program.value(program.nodes[6].outputs[0]).role, Role::kGradient);
}

TEST_F(TextFormTest, AConstantIsALeafThatNothingUpdates) {
  const std::string text = R"(program "masked" {
  parameter %w : f32[2,2]
  constant %h.0.mask : bool[2,2]
  constant %table : bf16[2,2] in "tables" at 0 of 4
  %0 : f32[2,2] = select(%h.0.mask, %w, %w) @ h.0 forward model.py:84
}
)";
  const Program program = parse_program(text);
  verify(program);
  EXPECT_EQ(print(program, {.locations = true}), text);
  EXPECT_TRUE(parse_program(text) == program);
  EXPECT_EQ(program.value(program.find_leaf("h.0.mask")).leaf, LeafKind::kConstant);
  EXPECT_EQ(program.nodes[0].origin().file, "model.py");
  EXPECT_EQ(program.nodes[0].origin().line, 84);
  EXPECT_THROW(parse_program("program \"p\" {\n  constant %c : f32[]\n  update %c = %c\n}\n"),
               Error);
}

TEST_F(TextFormTest, AFusedNodeWrittenByHandIsReadVerifiedAndPutBackInPlace) {
  const Program program = parse_program(R"(program "fused" {
  input %x : f32[3,4]
  input %y : f32[3,4]
  %0, %1 : f32[3,4], f32[3] = fused(%x, %y) {body=program "body" {
    input %a : f32[3,4]
    input %b : f32[3,4]
    %0 : f32[3,4] = mul(%a, %b) @ ffn forward
    %1 : f32[3,4] = silu(%0) @ ffn.act forward
    %2 : f32[3] = sum(%1) {axes=[1]} @ ffn.sum forward
    output "act" = %1
    output "rows" = %2
  }} @ ffn forward | ffn.act forward by fuse
  output "act" = %0
  output "rows" = %1
})");
  verify(program, VerifyStage::kMaterialized);
  EXPECT_TRUE(parse_program(print(program)) == program);
  EXPECT_EQ(program.nodes[0].attrs.region("body").nodes.size(), 3u);

  const Program parts =
      decompose(program, [](const OpDef& op) { return op.kernel_class == KernelClass::kFused; });
  verify(parts);
  ASSERT_EQ(parts.nodes.size(), 3u);
  EXPECT_EQ(parts.nodes[1].op->name, "silu");
  EXPECT_EQ(parts.nodes[1].origin().path, "ffn.act");
}

TEST_F(TextFormTest, AnAllReduceWrittenByHandIsReadAndVerified) {
  const Program program = parse_program(R"(program "reduce" {
  parameter %w : f32[8]
  %0 : f32[8] !gradient = affine(%w) {scale=2.0} @ layers.0 backward
  %1 : f32[8] !gradient = all_reduce(%0) {ranks=2} @ layers.0 communication by shard
  output "grad.w" = %1
})");
  verify(program, VerifyStage::kMaterialized);
  EXPECT_TRUE(parse_program(print(program)) == program);
  EXPECT_EQ(program.nodes[1].origin().phase, Phase::kCommunication);
}

TEST_F(TextFormTest, LocationsArePrintedWhenAskedFor) {
  Builder b("located");
  b.output("y", ops::silu(b.input("x", {DType::kF32, {2}})));
  const Program program = b.finish();
  const PrintOptions with_locations{.locations = true};
  EXPECT_EQ(print(program).find("text_form_test.cpp"), std::string::npos);
  EXPECT_NE(print(program, with_locations).find("text_form_test.cpp:"), std::string::npos);
  EXPECT_TRUE(parse_program(print(program, with_locations)) == program);
  EXPECT_EQ(print(program, {.origins = false}).find("forward"), std::string::npos);
}

TEST_F(TextFormTest, NumbersSurviveToTheLastBit) {
  for (double value : {0.1, -1.0 / 3.0, 1e-300, 1e300, 5e-324, 0.0, 123456789.0}) {
    Builder b("numbers");
    b.output("y", ops::fill(b, value, {DType::kF64, {}}));
    const Program again = parse_program(print(b.program()));
    EXPECT_EQ(again.nodes[0].attrs.real("value"), value);
  }
}

TEST_F(TextFormTest, InfinityIsANumberToo) {
  Builder b("infinity");
  b.output("y", ops::fill(b, -std::numeric_limits<double>::infinity(), {DType::kF32, {}}));
  const Program program = b.finish();
  EXPECT_EQ(print(parse_program(print(program))), print(program));
}

// --- mistakes ----------------------------------------------------------------------------------
std::string error_of(const std::string& lines) {
  try {
    parse_program("program \"p\" {\n" + lines + "}\n", "f.ir");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInput);
    return e.what();
  }
  return "nothing was thrown";
}

TEST_F(TextFormTest, WhatNoProgramHoldsIsRefused) {
  const std::pair<std::string, std::string_view> cases[] = {
      {"input %x : f32[9223372036854775807,2]\n", "than 64 bits can count"},
      {"input %x : f32[4611686018427387904,0,4]\n", "than 64 bits can count"},
      // A product that is larger than its operands let see.
      {"input %a : f32[1099511627776,1]\ninput %b : f32[1,1099511627776]\n"
       "%0 : f32[1099511627776,1099511627776] = matmul(%a, %b)\n",
       "than 64 bits can count"},
      {"input %0 : f32[]\n", "a name for the result of a node"},
      {"input %x : f32[]\n%0 : f32[] = exp(%x) #99999999999\n", "is no integer"},
  };
  for (const auto& [lines, what] : cases) {
    EXPECT_NE(error_of(lines).find(what), std::string::npos) << error_of(lines);
  }
}

TEST_F(TextFormTest, EveryMistakeIsNamedWithItsLineAndColumn) {
  const struct {
    std::string lines, where, what;
  } mistakes[] = {
      {"  inptu %x : f32[2]\n", "f.ir:2:3", "'inptu' starts no line"},
      {"  input %x : f33[2]\n", "f.ir:2:14", "'f33' is no dtype"},
      {"  input %x f32[2]\n", "f.ir:2:12", "':' expected"},
      {"  input %x : f32[2\n", "f.ir:3:1", "',' expected"},
      {"  input %x : f32[a]\n", "f.ir:2:18", "'a' is no integer"},
      {"  input %x : f32[-1]\n", "f.ir:2:21", "a dimension is negative"},
      {"  input %x : f32[1,1,1,1,1,1,1,1,1]\n", "f.ir:2:34", "more than 8 dimensions"},
      {"  input %x : f32[2]\n  input %x : f32[2]\n", "f.ir:3:3", "leaf 'x' exists already"},
      {"  %0 : f32[2] = silu(%x)\n", "f.ir:2:23", "there is no value %x"},
      {"  input %x : f32[2]\n  %0 : f32[2] = silo(%x)\n", "f.ir:3:3", "did you mean 'silu'?"},
      {"  input %x : f32[2]\n  %0 : f32[3] = silu(%x)\n", "f.ir:3:3",
       "%0 is written as f32[3], inferred as f32[2]"},
      {"  input %x : f32[2]\n  %0 : f32[2] = affine(%x) {sacle=2.0}\n", "f.ir:3:29",
       "affine has no attribute 'sacle'"},
      {"  input %x : f32[2]\n  %0 : f32[2] = affine(%x) {scale=two}\n", "f.ir:3:35",
       "'two' is no number"},
      {"  input %x : f32[2]\n  %0, %1 : f32[2], f32[2] = silu(%x)\n", "f.ir:3:3",
       "the op has 1 results"},
      {"  input %x : f32[2]\n  %0 : f32[2] = silu(%x) @ a sideways\n", "f.ir:3:30",
       "'sideways' is no phase"},
      {"  input %x : f32[2] !precious\n", "f.ir:2:22", "'precious' is no role"},
      {"  input %x : f32[2]\n  update %x = %x\n", "f.ir:3:3",
       "only a parameter or a state can be updated"},
      {"  output \"y = %x\n", "f.ir:4:1", "closing quote expected"},
  };
  for (const auto& mistake : mistakes) {
    const std::string message = error_of(mistake.lines);
    EXPECT_NE(message.find("[" + mistake.where + "]"), std::string::npos) << message;
    EXPECT_NE(message.find(mistake.what), std::string::npos) << message;
  }
}

TEST_F(TextFormTest, TextThatEndsTooEarlyOrTooLateIsRefused) {
  const std::string whole = print(parse_program(R"(program "p" {
  input %x : f32[2]
  %0 : f32[2] = affine(%x) {scale=0.5} #1 @ a.b forward by hand
  output "y" = %0
})"));
  for (std::size_t length = 0; length + 2 < whole.size(); ++length) {
    EXPECT_THROW(parse_program(whole.substr(0, length)), Error) << length;
  }
  EXPECT_THROW(parse_program(whole + "x"), Error);
  parse_program("; a comment\n" + whole + "; another");
}

}  // namespace
}  // namespace tracestep
