// The guard of the optimizer, as text and on a program small enough to follow by hand:
// loss = Σ w·x + log y, so the gradient is x, and y alone decides whether the loss is finite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ops/functions.h"
#include "passes/optimizer.h"
#include "passes/pipeline.h"
#include "support/backends.h"
#include "support/host_values.h"
#include "support/run_program.h"

namespace tracestep {
namespace {

using testing::Tensors;
using testing::to_doubles;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr const char* kForward = R"(program "p" {
  parameter %w : f32[2]
  input %x : f32[2]
  input %y : f32[]
  %0 : f32[2] = mul(%w, %x)
  %1 : f32[] = sum(%0) {axes=[0]}
  %2 : f32[] = log(%y)
  %3 : f32[] = add(%1, %2)
  output "loss" = %3
})";

struct Step {
  OptimizerKind kind = OptimizerKind::kAdamw;
  Granularity ops = Granularity::kFused;
  double clip = 0.0;
  bool guarded = true;
  std::vector<double> x = {3.0, 4.0};
  double y = 1.0;
};

Program program_of(const Step& s) {
  RunSpec run{.verify = true};
  run.mode = Mode::kStep;
  run.ops = s.ops;
  run.optimizer.kind = s.kind;
  run.optimizer.clip = s.clip;
  run.optimizer.report_norm = true;
  run.optimizer.guard_finite = s.guarded;
  return run_pipeline(parse_program(kForward), run).program;
}

HostTensor number(double value) {
  return testing::from_doubles(DType::kF32, {}, std::vector{value});
}

HostTensor pair_of(std::vector<double> values) {
  return testing::from_doubles(DType::kF32, {2}, values);
}

Tensors run(const testing::Backend& backend, const Step& s) {
  const auto device = backend.make({.guarded = true});
  return testing::run_program(*device, program_of(s),
                              {{"w", pair_of({1.0, -2.0})},
                               {"x", pair_of(s.x)},
                               {"y", number(s.y)},
                               {"lr", number(0.125)},
                               {"step_size", number(0.125)},
                               {"adamw.m.w", pair_of({0.5, 0.25})},
                               {"adamw.v.w", pair_of({0.5, 0.75})}});
}

bool is_applied(const Tensors& results) {
  return tracestep::is_applied(to_doubles(results.at("grad_norm"))[0],
                               to_doubles(results.at("loss"))[0]);
}

TEST(FiniteGuardTextTest, TheUpdateIsToldWhetherLossAndGradientsAreFinite) {
  ops::register_all();
  const Program program = program_of({});
  verify(program);
  EXPECT_THAT(print(program, {.origins = false}), ::testing::EndsWith(R"(
  %8 : f32[] = global_norm(%7)
  %9 : f32[] = affine(%3) {scale=0.0, shift=1.8446744073709552e+19}
  %10 : bool[] = lt(%8, %9)
  %11 : f32[] = fill() {dtype=f32, shape=[], value=1.0}
  %12, %13, %14 : f32[2], f32[2], f32[2] = adamw(%w, %7, %adamw.m.w, %adamw.v.w, %lr, %step_size, %11, %10)
  update %w = %12
  update %adamw.m.w = %13
  update %adamw.v.w = %14
  output "grad_norm" = %8
  output "loss" = %3
}
)"));
}

// The measured step is the published one, which does not check its numbers.
TEST(FiniteGuardTextTest, WithoutTheGuardTheUpdateIsToldNothing) {
  ops::register_all();
  const std::string text = print(program_of({.guarded = false}), {.origins = false});
  EXPECT_THAT(text, ::testing::HasSubstr("%lr, %step_size)"));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("bool")));
}

class FiniteGuardTest : public ::testing::TestWithParam<std::tuple<OptimizerKind, Granularity>> {
 protected:
  void SetUp() override { ops::register_all(); }
  static Step step() { return {.kind = std::get<0>(GetParam()), .ops = std::get<1>(GetParam())}; }
  static bool has_moments() { return std::get<0>(GetParam()) == OptimizerKind::kAdamw; }

  static void expect_unchanged(const Tensors& after) {
    EXPECT_FALSE(is_applied(after));
    EXPECT_EQ(to_doubles(after.at("w")), (std::vector{1.0, -2.0}));
    if (!has_moments()) return;
    EXPECT_EQ(to_doubles(after.at("adamw.m.w")), (std::vector{0.5, 0.25}));
    EXPECT_EQ(to_doubles(after.at("adamw.v.w")), (std::vector{0.5, 0.75}));
  }
};

TEST_P(FiniteGuardTest, AFiniteStepIsTheStepWithoutTheGuardToTheBit) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    for (double clip : {0.0, 1.0}) {
      Step with = step();
      with.clip = clip;
      Step without = with;
      without.guarded = false;
      const Tensors a = run(backend, with), b = run(backend, without);
      EXPECT_TRUE(is_applied(a));
      for (const auto& [name, value] : b) EXPECT_EQ(a.at(name).bytes, value.bytes) << name;
    }
  }
}

TEST_P(FiniteGuardTest, AGradientThatIsNotFiniteChangesNothing) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    for (double bad : {kInfinity, -kInfinity, std::nan("")}) {
      for (double clip : {0.0, 1.0}) {
        Step poisoned = step();
        poisoned.clip = clip;
        poisoned.x = {3.0, bad};
        expect_unchanged(run(backend, poisoned));
      }
    }
  }
}

TEST_P(FiniteGuardTest, ALossThatIsNotFiniteChangesNothingThoughTheGradientIs) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    for (double y : {0.0, kInfinity, -1.0}) {  // their logarithms: -∞, ∞, NaN
      Step poisoned = step();
      poisoned.y = y;
      const Tensors after = run(backend, poisoned);
      EXPECT_EQ(to_doubles(after.at("grad_norm"))[0], 5.0);
      expect_unchanged(after);
    }
  }
}

// AdamW's v would be infinite from then on, and the parameter would never move again.
TEST_P(FiniteGuardTest, AGradientWhoseSquareOverflowsChangesNothing) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    Step large = step();
    large.x = {1e20, 5e19};  // the loss is 0
    expect_unchanged(run(backend, large));
    large.x = {1e18, 0.0};
    EXPECT_TRUE(is_applied(run(backend, large)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, FiniteGuardTest,
    ::testing::Combine(::testing::Values(OptimizerKind::kAdamw, OptimizerKind::kSgd),
                       ::testing::Values(Granularity::kPrimitive, Granularity::kFused)),
    [](const auto& p) {
      return std::string(std::get<0>(p.param) == OptimizerKind::kSgd ? "sgd_" : "adamw_") +
             std::string(name_of(std::get<1>(p.param)));
    });

}  // namespace
}  // namespace tracestep
