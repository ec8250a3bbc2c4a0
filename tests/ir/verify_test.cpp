// The verifier names the node that breaks a rule: one planted fault per rule.
#include "ir/verify.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "ir/parse.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

class VerifyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ops::register_all();
    program_ = parse_program(R"(program "p" {
  input %x : f32[4,6]
  parameter %w : f32[4,6]
  state %s : f32[4,6]
  %0 : f32[6,4] = permute(%x) {axes=[1,0]} @ layers.0 forward
  %1 : f32[4,4] = matmul(%w, %0) @ layers.1 forward
  %2 : f32[4,6] = add(%w, %s) @ layers.2 optimizer
  %3 : f32[4,6] = silu(%2) @ layers.3 forward
  update %w = %2
  output "y" = %1
  output "z" = %3
})");
    verify(program_, VerifyStage::kMaterialized);
  }

  Value& value(std::size_t node, std::size_t output = 0) {
    return program_.values[static_cast<std::size_t>(program_.nodes[node].outputs[output])];
  }
  // The verifier's complaint about the program as it is now.
  std::string complaint(VerifyStage stage = VerifyStage::kMaterialized) const {
    try {
      verify(program_, stage);
    } catch (const std::logic_error& e) {
      return e.what();
    } catch (const Error& e) {
      return e.what();
    }
    return "none";
  }
  void expect_complaint(const std::string& text) const {
    const std::string message = complaint();
    EXPECT_NE(message.find(text), std::string::npos) << message;
  }

  Program program_;
};

TEST_F(VerifyTest, UseBeforeDefinition) {
  std::swap(program_.nodes[0], program_.nodes[1]);
  expect_complaint("node 0 matmul (layers.1) reads value 3, which is not defined yet");
}

TEST_F(VerifyTest, AnOutputThatNobodyMakes) {
  program_.outputs[0].value = 99;
  expect_complaint("output y reads value 99, which is not defined yet");
}

TEST_F(VerifyTest, ATypeThatIsNotTheInferredOne) {
  value(3).type.dtype = DType::kBF16;
  expect_complaint("node 3 silu (layers.3): result 0 is bf16[4,6], inferred f32[4,6]");
}

TEST_F(VerifyTest, OperandsThatDoNotFit) {
  program_.nodes[2].inputs[1] = program_.nodes[0].outputs[0];
  expect_complaint("shapes differ");
}

TEST_F(VerifyTest, AResultThatSaysItIsMadeElsewhere) {
  value(1).producer = 0;
  expect_complaint("node 1 matmul (layers.1): result 0 has another producer");
}

TEST_F(VerifyTest, AMissingResult) {
  program_.nodes[3].outputs.clear();
  expect_complaint("node 3 silu (layers.3): result count");
}

TEST_F(VerifyTest, ALayoutThatIsNotTheOneOfTheView) {
  value(0).layout.strides = {4, 1};
  expect_complaint("node 0 permute (layers.0): layout");
}

TEST_F(VerifyTest, AKernelResultThatIsNotContiguous) {
  value(3).layout.offset = 1;
  expect_complaint("node 3 silu (layers.3): layout");
}

TEST_F(VerifyTest, ANodeWithoutAnOrigin) {
  program_.nodes[3].origins = {};
  expect_complaint("has no origin");
}

TEST_F(VerifyTest, TwoLeavesOfOneName) {
  program_.values[static_cast<std::size_t>(program_.leaves[1])].name = "x";
  expect_complaint("two leaves are called x");
}

TEST_F(VerifyTest, AReadOfALeafAfterItsUpdate) {
  program_.nodes[3].inputs[0] = program_.find_leaf("w");
  expect_complaint("node 3 silu (layers.3) reads the old value of w after its update");
}

TEST_F(VerifyTest, AnOutputThatIsAnUpdatedLeaf) {
  program_.outputs[1].value = program_.find_leaf("w");
  expect_complaint("an output reads the old value of w after its update");
}

TEST_F(VerifyTest, AnUpdateOfAnInput) {
  program_.updates[0].leaf = program_.find_leaf("x");
  expect_complaint("x cannot be updated");
}

TEST_F(VerifyTest, TwoUpdatesOfOneLeaf) {
  program_.updates.push_back(program_.updates[0]);
  expect_complaint("w is updated twice");
}

TEST_F(VerifyTest, AnUpdateOfAnotherType) {
  program_.updates[0].value = program_.nodes[1].outputs[0];
  expect_complaint("update of w");
}

TEST_F(VerifyTest, AViewThatNeedsACopyIsAnErrorOnceCopiesAreExplicit) {
  program_ = parse_program(R"(program "p" {
  input %x : f32[4,6]
  %0 : f32[6,4] = permute(%x) {axes=[1,0]} @ a forward
  %1 : f32[24] = reshape(%0) {shape=[24]} @ b forward
  output "y" = %1
})");
  EXPECT_EQ(complaint(VerifyStage::kBuilt), "none");
  expect_complaint("node 1 reshape (b) needs a copy first");
}

TEST_F(VerifyTest, AnOperandWhoseStridesTheOpDoesNotAccept) {
  program_ = parse_program(R"(program "p" {
  input %x : f32[4,6]
  %0 : f32[6,4] = permute(%x) {axes=[1,0]} @ a forward
  %1 : f32[6,4] = softmax(%0) @ b forward
  output "y" = %1
})");
  EXPECT_EQ(complaint(VerifyStage::kBuilt), "none");
  expect_complaint("node 1 softmax (b): operand 0 has strides [1,6] for shape [6,4]");
}

TEST_F(VerifyTest, ABlockOfLeavesThatDoNotFollowOneAnother) {
  const std::string text = R"(program "p" {{
  parameter %a : f32[2,3] in "ab" at 0 of 15
  parameter %b : f32[3,3] in "ab" at {} of 15
  %0 : f32[5,3] = block({}) @ . forward
  %1 : f32[3,3] = exp(%b) @ . forward
  {}
  %2 : f32[5,3] = exp(%0) @ . forward
  output "y" = %2
}})";
  program_ = parse_program(fmt::format(fmt::runtime(text), 6, "%a, %b", "output \"z\" = %1"));
  EXPECT_EQ(complaint(), "none");
  program_ = parse_program(fmt::format(fmt::runtime(text), 6, "%b, %a", ""));
  expect_complaint("a does not follow in block ab");
  // An update of one part is an update of the block.
  program_ = parse_program(fmt::format(fmt::runtime(text), 6, "%a, %b", "update %b = %1"));
  expect_complaint("reads the old value of b after its update");
}

TEST_F(VerifyTest, ABlockLiesInOneMemoryAndInputsInTheDevices) {
  program_ = parse_program(R"(program "p" {
  state %a : f32[3] in "ab" at 0 of 6 on host
  state %b : f32[3] in "ab" at 3 of 6 on host
  input %x : f32[3]
})");
  EXPECT_EQ(complaint(), "none");
  program_.values[1].memory = Memory::kDevice;
  expect_complaint("block ab lies in two memories");
  program_.values[1].memory = program_.values[2].memory = Memory::kHost;
  expect_complaint("input x in host memory");
}

}  // namespace
}  // namespace tracestep
