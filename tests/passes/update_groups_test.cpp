// Groups of parameters with rates and rules of their own, as a program around ours has them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ops/functions.h"
#include "passes/form_passes.h"
#include "passes/kernel_passes.h"
#include "passes/optimizer.h"
#include "passes/update_passes.h"

namespace tracestep {
namespace {

using testing::HasSubstr;

constexpr const char* kGradients = R"(program "p" {
  parameter %a : f32[4]
  parameter %b : f32[4]
  %0 : f32[4] !gradient = exp(%a) @ a backward
  %1 : f32[4] !gradient = exp(%b) @ b backward
  output "grad.a" = %0
  output "grad.b" = %1
})";

class UpdateGroupsTest : public ::testing::Test {
 protected:
  UpdateGroupsTest() { ops::register_all(); }
};

TEST_F(UpdateGroupsTest, EachGroupReadsItsOwnRatesAndNumbers) {
  const UpdateContext context{
      .groups = {{.parameters = {"b"}, .eps = 1e-6, .weight_decay = 0.25},
                 {.parameters = {"a"}, .beta1 = 0.5, .beta2 = 0.75, .weight_decay = 0.0}}};
  const Program out = optimizer(parse_program(kGradients), {.weight_decay = 0.5}, context);
  const std::string text = print(out);
  EXPECT_THAT(text, HasSubstr("input %lr : f32[]"));
  EXPECT_THAT(text, HasSubstr("input %step_size : f32[2]"));
  EXPECT_THAT(text,
              HasSubstr("adamw(%a, %0, %adamw.m.a, %adamw.v.a, %lr.1, %step_size.1) {beta1=0.5"));
  EXPECT_THAT(text, HasSubstr("adamw(%b, %1, %adamw.m.b, %adamw.v.b, %lr, %step_size) "));
  EXPECT_THAT(text, HasSubstr("weight_decay=0.25"));
  EXPECT_THAT(text, testing::Not(HasSubstr("weight_decay=0.5")));
}

TEST_F(UpdateGroupsTest, AParameterWithoutAGroupIsRefused) {
  const UpdateContext context{.groups = {{.parameters = {"a"}}}};
  try {
    optimizer(parse_program(kGradients), {}, context);
    FAIL() << "b is in no group";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("b is in no group of parameters"));
  }
}

TEST_F(UpdateGroupsTest, SgdAddsAGroupsDecayToTheGradient) {
  const UpdateContext context{
      .groups = {{.parameters = {"a"}, .weight_decay = 0.25}, {.parameters = {"b"}}}};
  const Program out = optimizer(parse_program(kGradients), {.kind = OptimizerKind::kSgd}, context);
  verify(materialize(out), VerifyStage::kMaterialized);
  EXPECT_EQ(out.find_leaf("step_size"), kNoValue);
  EXPECT_THAT(print(out), HasSubstr("affine(%lr) {scale=0.25"));
}

}  // namespace
}  // namespace tracestep
