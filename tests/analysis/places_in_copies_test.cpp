#include "analysis/places_in_copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/plan.h"
#include "ir/parse.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

class PlacesInCopiesTest : public testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
};

// A product with a weight, backward through it, and the update that writes the weight's copy.
constexpr const char* kStep = R"(program "step" {
  input %x : bf16[8,4]
  input %lr : f32[]
  input %step_size : f32[]
  parameter %w : f32[16,4]
  state %m : f32[16,4] !optimizer_state
  state %v : f32[16,4] !optimizer_state
  state %shadow.w : bf16[16,4] !weight_cast

  %0 : bf16[8,16] = matmul(%x, %shadow.w) {transpose_b=true}
  %1 : bf16[8,4] = matmul(%0, %shadow.w)
  %2 : bf16[16,4] !gradient = matmul(%0, %x) {transpose_a=true} @ own backward
  %3, %4, %5, %6 : f32[16,4], f32[16,4], f32[16,4], bf16[16,4] = multi_adamw(%lr, %step_size, %w, %2, %m, %v, %shadow.w) {shadowed=true}
  update %w = %3
  update %m = %4
  update %v = %5
  update %shadow.w = %6
  output "x_gradient" = %1
}
)";

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t found = text.find(from);
  EXPECT_NE(found, std::string::npos) << from;
  return text.replace(found, from.size(), to);
}

// Names of the leaves by names of the values that lie there: "2" is %2.
std::map<std::string, std::string> places(const std::string& text) {
  const Program program = parse_program(text);
  std::map<std::string, std::string> out;
  for (const auto& [value, leaf] : places_in_copies(program)) {
    const Value& v = program.value(value);
    out[program.node(v.producer).origin().path + ":" + v.type.str()] = program.value(leaf).name;
  }
  return out;
}

TEST_F(PlacesInCopiesTest, AGradientLiesInTheCopyOfItsWeight) {
  EXPECT_THAT(places(kStep), ElementsAre(Pair("own:bf16[16,4]", "shadow.w")));
  const Program program = parse_program(kStep);
  const Plan plan = plan_step(program, {});
  const auto buffer = [&](const char* leaf) {
    return plan.buffer_plan.buffer(program.find_leaf(leaf));
  };
  EXPECT_EQ(plan.buffer_plan.buffer(program.updates[3].value), buffer("shadow.w"));
  ValueId gradient = kNoValue;
  for (std::size_t i = 0; i < program.values.size(); ++i) {
    if (program.values[i].role == Role::kGradient) gradient = static_cast<ValueId>(i);
  }
  EXPECT_EQ(plan.buffer_plan.buffer(gradient), buffer("shadow.w"));
}

TEST_F(PlacesInCopiesTest, ACopyThatIsReadLaterIsNoPlace) {
  const std::string later = with(with(kStep, "  %1 : bf16[8,4] = matmul(%0, %shadow.w)\n", ""),
                                 "  %3, %4", "  %1 : bf16[8,4] = matmul(%0, %shadow.w)\n  %3, %4");
  EXPECT_THAT(places(later), IsEmpty());
}

TEST_F(PlacesInCopiesTest, AGradientThatStaysIsNotThere) {
  EXPECT_THAT(places(with(kStep, "  output", "  output \"gradient\" = %2\n  output")), IsEmpty());
}

// The copy is anew before the result is read.
TEST_F(PlacesInCopiesTest, AGradientOfAnotherDtypeLeavesRoomForATermOfIt) {
  const std::string wide =
      with(with(kStep, "bf16[16,4] !gradient = matmul(%0, %x) {transpose_a=true} @ own backward",
                "bf16[16,4] = matmul(%0, %x) {transpose_a=true} @ term backward\n"
                "  %7 : f32[16,4] !gradient = cast(%2) {dtype=f32} @ whole backward"),
           "%w, %2,", "%w, %7,");
  EXPECT_THAT(places(wide), ElementsAre(Pair("term:bf16[16,4]", "shadow.w")));
}

// Products that are one have one gradient, whose parts lie as their copies do.
constexpr const char* kBlock = R"(program "step" {
  input %x : bf16[8,4]
  input %lr : f32[]
  input %step_size : f32[]
  parameter %a : f32[16,4]
  parameter %b : f32[8,4]
  state %shadow.a : bf16[16,4] !weight_cast in "both" at 0 of 96
  state %shadow.b : bf16[8,4] !weight_cast in "both" at 64 of 96
  state %am : f32[16,4] !optimizer_state
  state %av : f32[16,4] !optimizer_state
  state %bm : f32[8,4] !optimizer_state
  state %bv : f32[8,4] !optimizer_state

  %0 : bf16[24,4] = block(%shadow.a, %shadow.b)
  %1 : bf16[8,24] = matmul(%x, %0) {transpose_b=true}
  %2 : bf16[24,4] = matmul(%1, %x) {transpose_a=true} @ joined backward
  %3 : bf16[16,4] !gradient = slice(%2) {axis=0, start=0, stop=16}
  %4 : bf16[8,4] !gradient = slice(%2) {axis=0, start=16, stop=24}
  %5, %6, %7, %8, %9, %10, %11, %12 : f32[16,4], f32[16,4], f32[16,4], bf16[16,4], f32[8,4], f32[8,4], f32[8,4], bf16[8,4] = multi_adamw(%lr, %step_size, %a, %3, %am, %av, %shadow.a, %b, %4, %bm, %bv, %shadow.b) {shadowed=true}
  update %a = %5
  update %am = %6
  update %av = %7
  update %shadow.a = %8
  update %b = %9
  update %bm = %10
  update %bv = %11
  update %shadow.b = %12
}
)";

TEST_F(PlacesInCopiesTest, AGradientOfSeveralWeightsLiesInTheirBlock) {
  EXPECT_THAT(places(kBlock), ElementsAre(Pair("joined:bf16[24,4]", "shadow.a")));
}

TEST_F(PlacesInCopiesTest, CopiesInAnotherOrderHoldNoGradientOfSeveral) {
  const std::string other =
      with(with(with(kBlock, "slice(%2) {axis=0, start=0, stop=16}",
                     "slice(%2) {axis=0, start=8, stop=24}"),
                "slice(%2) {axis=0, start=16, stop=24}", "slice(%2) {axis=0, start=0, stop=8}"),
           "@ joined", "@ swapped");
  EXPECT_THAT(places(other), IsEmpty());
}

TEST_F(PlacesInCopiesTest, BesideAnotherLaneNothingIsLent) {
  EXPECT_THAT(places(with(kStep, "{shadowed=true}", "{lane=1, shadowed=true}")), IsEmpty());
}

}  // namespace
}  // namespace tracestep
