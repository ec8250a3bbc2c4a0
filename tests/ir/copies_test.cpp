// Copies of programs: what two equal programs have in common, and what a copied node takes over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/parse.h"
#include "ir/print.h"
#include "ir/rewrite.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

constexpr const char* kText = R"(program "p" {
  input %x : f32[4,8]
  parameter %w : f32[8]
  %0 : f32[8,4] = permute(%x) {axes=[1,0]} @ a forward
  %1 : f32[4] = sum(%0) {axes=[0]} @ b forward
  %2 : f32[8] = add(%w, %w) @ c optimizer
  update %w = %2
  output "y" = %1
}
)";

class CopiesTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
  static Program changed(std::string text, const std::string& what, const std::string& with) {
    const std::size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return parse_program(text.replace(at, what.size(), with));
  }
};

TEST_F(CopiesTest, EqualProgramsAreEqualInEverythingThatIsPrinted) {
  const Program program = parse_program(kText);
  EXPECT_TRUE(program == parse_program(kText));
  using Change = std::pair<const char*, const char*>;
  for (const auto& [what, with] :
       {Change{"\"p\"", "\"q\""}, Change{"%w : f32[8]\n", "%w : f32[8] in \"b\" at 0 of 16\n"},
        Change{"add(%w, %w)", "mul(%w, %w)"}, Change{"@ b forward", "@ b backward"},
        Change{"@ b forward", "@ other forward"}, Change{"@ b forward", "@ b forward by me"},
        Change{"@ b forward", "#1 @ b forward"},
        Change{"%0 : f32[8,4] =", "%0 : f32[8,4] !gradient ="}, Change{"\"y\" = %1", "\"z\" = %1"},
        Change{"  update %w = %2\n", ""}}) {
    EXPECT_FALSE(program == changed(kText, what, with)) << what << " as " << with;
  }
}

TEST_F(CopiesTest, FusedNodesAreComparedByTheirBodies) {
  const std::string text = R"(program "fused" {
  input %x : f32[3,4]
  %0 : f32[3,4] = fused(%x) {body=program "body" {
    input %a : f32[3,4]
    %0 : f32[3,4] = mul(%a, %a) @ ffn forward
    %1 : f32[3,4] = silu(%0) @ ffn.act forward
    output "act" = %1
  }} @ ffn forward by fuse
  output "act" = %0
})";
  EXPECT_TRUE(parse_program(text) == parse_program(text));
  EXPECT_FALSE(parse_program(text) == changed(text, "mul(%a, %a)", "add(%a, %a)"));
}

TEST_F(CopiesTest, ACopyOfEverythingIsEqual) {
  const Program program = parse_program(kText);
  Rewriter r(program, "test");
  for (const Node& node : program.nodes) r.copy(node);
  const Program copy = r.finish();
  EXPECT_TRUE(copy == program);
  EXPECT_EQ(print(copy), print(program));
  for (std::size_t i = 0; i < program.values.size(); ++i) {
    EXPECT_EQ(copy.values[i].layout, program.values[i].layout) << i;
  }
}

// Types and layouts are derived anew for nodes whose operands changed.
TEST_F(CopiesTest, ACopyFollowsItsOperands) {
  const Program program = parse_program(kText);
  Rewriter r(program, "test");
  for (const Node& node : program.nodes) {
    std::vector<Val> inputs = r.inputs(node);
    if (node.op->is_view()) inputs = {r.builder().call1("cast", inputs, {{"dtype", DType::kBF16}})};
    r.copy(node, inputs);
  }
  const Program wider = r.finish();
  EXPECT_THAT(print(wider), ::testing::HasSubstr("bf16[8,4] = permute"));
  EXPECT_THAT(print(wider), ::testing::HasSubstr("bf16[4] = sum"));

  const Program views = parse_program(R"(program "p" {
  input %x : f32[4,4]
  %0 : f32[4,4] = permute(%x) {axes=[1,0]} @ a forward
  output "y" = %0
}
)");
  Rewriter twice(views, "test");
  const Val once =
      twice.builder().call1("permute", twice.inputs(views.nodes[0]), {{"axes", Dims{1, 0}}});
  const Val back = twice.copy(views.nodes[0], {once}).front();
  const Program& made = twice.builder().program();
  EXPECT_EQ(made.value(back.id).layout.strides, (Strides{4, 1}));
  EXPECT_EQ(made.value(back.id).layout.base, made.leaves[0]);
}

}  // namespace
}  // namespace tracestep
