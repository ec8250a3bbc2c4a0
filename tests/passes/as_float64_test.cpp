#include "passes/form_passes.h"

#include <gtest/gtest.h>

#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

class AsFloat64Test : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
};

TEST_F(AsFloat64Test, LeavesGeneratorsAndCastsBecomeFloat64) {
  const Program program = parse_program(R"(program "p" {
  input %ids : i64[3]
  parameter %w : bf16[5,4]
  state %m : f32[5,4] !optimizer_state
  %0 : bf16[3,4] = gather(%w, %ids) @ emb forward
  %1 : f32[3,4] = cast(%0) {dtype=f32} @ emb forward
  %2 : f32[3,4] = fill() {dtype=f32, shape=[3,4], value=0.5} @ . forward
  %3 : bool[3,4] = lt(%1, %2) @ . forward
  %4 : i64[3,4] = cast(%3) {dtype=i64} @ . forward
  %5 : f32[5,4] !gradient = affine(%m) {scale=2.0} @ . optimizer
  update %m = %5
  output "small" = %4
})");
  const Program wide = as_float64(program);
  verify(wide);
  EXPECT_EQ(print(wide), R"(program "p" {
  input %ids : i64[3]
  parameter %w : f64[5,4]
  state %m : f64[5,4] !optimizer_state
  %0 : f64[3,4] = gather(%w, %ids) @ emb forward
  %1 : f64[3,4] = cast(%0) {dtype=f64} @ emb forward
  %2 : f64[3,4] = fill() {dtype=f64, shape=[3,4], value=0.5} @ . forward
  %3 : bool[3,4] = lt(%1, %2) @ . forward
  %4 : i64[3,4] = cast(%3) {dtype=i64} @ . forward
  %5 : f64[5,4] !gradient = affine(%m) {scale=2.0} @ . optimizer
  update %m = %5
  output "small" = %4
}
)");
  EXPECT_TRUE(as_float64(wide) == wide);
}

TEST_F(AsFloat64Test, BodiesOfFusedNodesToo) {
  const Program program = parse_program(R"(program "p" {
  input %x : f16[4]
  %0 : f16[4] = fused(%x) {body=program "b" {
    input %a : f16[4]
    %0 : f32[4] = cast(%a) {dtype=f32} @ . forward
    %1 : f16[4] = cast(%0) {dtype=f16} @ . forward
    output "y" = %1
  }} @ . forward
  output "y" = %0
})");
  const Program wide = as_float64(program);
  verify(wide);
  EXPECT_EQ(wide.type(wide.find_output("y")).dtype, DType::kF64);
  EXPECT_EQ(print(wide).find("f32"), std::string::npos);
}

}  // namespace
}  // namespace tracestep
