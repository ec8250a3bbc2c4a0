// Loss scaling on a program small enough to follow by hand: loss = Σ w·x, so the gradient is x.
#include "passes/loss_scaling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backends/cpu/cpu_device.h"
#include "ir/parse.h"
#include "ops/functions.h"
#include "passes/pipeline.h"
#include "support/host_values.h"
#include "support/run_program.h"

namespace tracestep {
namespace {

using testing::Tensors;
using testing::to_doubles;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Step {
  OptimizerKind kind = OptimizerKind::kAdamw;
  Granularity ops = Granularity::kFused;
  double clip = 0.0;
  bool scaled = true;
  std::vector<double> x = {3.0, 4.0};
  double scale = 1024.0, good_steps = 0.0, skipped_steps = 0.0;
  double floor = 0.0;
};

HostTensor number(double value) {
  return testing::from_doubles(DType::kF32, {}, std::vector{value});
}

Tensors run(const Step& s) {
  const Program forward = parse_program(R"(program "p" {
    parameter %w : f32[2]
    input %x : f32[2]
    %0 : f32[2] = mul(%w, %x)
    %1 : f32[] = sum(%0) {axes=[0]}
    output "loss" = %1
  })");
  RunSpec run{.verify = true};
  run.mode = Mode::kStep;
  run.ops = s.ops;
  run.optimizer.kind = s.kind;
  run.optimizer.clip = s.clip;
  run.optimizer.report_norm = true;
  run.optimizer.loss_scaling = {.enabled = s.scaled, .growth_interval = 3, .floor = s.floor};
  const Program program = run_pipeline(forward, run).program;
  const auto device = make_cpu_device({.threads = 2, .guarded = true});
  const auto values = [](std::vector<double> v) {
    return testing::from_doubles(DType::kF32, {2}, v);
  };
  return testing::run_program(*device, program,
                              {{"w", values({1.0, -2.0})},
                               {"x", values(s.x)},
                               {"lr", number(0.125)},
                               {"step_size", number(0.125)},
                               {"adamw.m.w", values({0.5, 0.25})},
                               {"adamw.v.w", values({0.5, 0.75})},
                               {"loss_scale", number(s.scale)},
                               {"loss_scale.good_steps", number(s.good_steps)},
                               {"loss_scale.skipped_steps", number(s.skipped_steps)}});
}

double value(const Tensors& results, std::string_view name) {
  return to_doubles(results.find(name)->second)[0];
}

class LossScalingTest : public ::testing::TestWithParam<std::tuple<OptimizerKind, Granularity>> {
 protected:
  void SetUp() override { ops::register_all(); }
  static Step step() { return {.kind = std::get<0>(GetParam()), .ops = std::get<1>(GetParam())}; }
  static std::vector<std::string> updated() {
    if (std::get<0>(GetParam()) == OptimizerKind::kSgd) return {"w"};
    return {"w", "adamw.m.w", "adamw.v.w"};
  }
};

TEST_P(LossScalingTest, AGoodStepIsTheStepWithoutScaling) {
  for (double clip : {0.0, 1.0}) {
    Step with = step();
    with.clip = clip;
    Step without = with;
    without.scaled = false;
    const Tensors a = run(with), b = run(without);
    for (const std::string& name : updated()) {
      EXPECT_EQ(to_doubles(a.at(name)), to_doubles(b.at(name))) << name;
    }
    EXPECT_EQ(value(a, "grad_norm"), 5.0) << "of the true gradient";
    EXPECT_EQ(value(a, "loss"), -5.0);
    EXPECT_EQ(value(a, "loss_scale"), 1024.0);
    EXPECT_EQ(value(a, "loss_scale.good_steps"), 1.0);
    EXPECT_EQ(value(a, "loss_scale.skipped_steps"), 0.0);
  }
}

TEST_P(LossScalingTest, AnOverflowChangesNothingButTheScale) {
  for (double bad : {kInfinity, -kInfinity, std::nan("")}) {
    for (double clip : {0.0, 1.0}) {
      Step overflow = step();
      overflow.clip = clip;
      overflow.x = {3.0, bad};
      overflow.good_steps = 2.0;
      overflow.skipped_steps = 4.0;
      const Tensors after = run(overflow);
      EXPECT_EQ(to_doubles(after.at("w")), (std::vector{1.0, -2.0}));
      if (overflow.kind == OptimizerKind::kAdamw) {
        EXPECT_EQ(to_doubles(after.at("adamw.m.w")), (std::vector{0.5, 0.25}));
        EXPECT_EQ(to_doubles(after.at("adamw.v.w")), (std::vector{0.5, 0.75}));
      }
      EXPECT_EQ(value(after, "loss_scale"), 512.0);
      EXPECT_EQ(value(after, "loss_scale.good_steps"), 0.0);
      EXPECT_EQ(value(after, "loss_scale.skipped_steps"), 5.0);
    }
  }
}

TEST_P(LossScalingTest, TheScaleGrowsAfterEnoughGoodStepsInARow) {
  Step last = step();
  last.good_steps = 2.0;
  last.skipped_steps = 1.0;
  const Tensors after = run(last);
  EXPECT_EQ(value(after, "loss_scale"), 2048.0);
  EXPECT_EQ(value(after, "loss_scale.good_steps"), 0.0);
  EXPECT_EQ(value(after, "loss_scale.skipped_steps"), 1.0);
}

TEST_P(LossScalingTest, TheScaleStopsAtItsFloor) {
  Step overflow = step();
  overflow.x = {3.0, kInfinity};
  overflow.scale = 1.5;
  EXPECT_EQ(value(run(overflow), "loss_scale"), 0.75);
  overflow.floor = 1.0;
  EXPECT_EQ(value(run(overflow), "loss_scale"), 1.0);
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, LossScalingTest,
    ::testing::Combine(::testing::Values(OptimizerKind::kAdamw, OptimizerKind::kSgd),
                       ::testing::Values(Granularity::kPrimitive, Granularity::kFused)),
    [](const auto& p) {
      return std::string(std::get<0>(p.param) == OptimizerKind::kSgd ? "sgd_" : "adamw_") +
             std::string(name_of(std::get<1>(p.param)));
    });

}  // namespace
}  // namespace tracestep
