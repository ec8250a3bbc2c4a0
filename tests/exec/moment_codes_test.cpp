// AdamW's states in 8 bits: codes are neighbours of the numbers and right on average, zero stays
// zero, an outlier does not lose its neighbours, and the same bits come however a step runs.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "ops/functions.h"
#include "ops/moment_codes.h"
#include "support/backends.h"
#include "support/host_values.h"
#include "support/run_program.h"

namespace tracestep {
namespace {

using testing::from_doubles;
using testing::Tensors;
using testing::to_doubles;

class MomentCodesTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ops::register_all(); }
  std::unique_ptr<Device> device(int threads = 2) const {
    return testing::backend_named(GetParam()).make({.threads = threads});
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, MomentCodesTest, ::testing::ValuesIn(testing::backend_names()));

constexpr Type kScalar{DType::kF32, {}};

HostTensor number(double value) {
  return from_doubles(DType::kF32, {}, std::vector{value});
}

// x as codes and back, by the noise of `step`; weights and gradients are random.
struct Stored {
  std::vector<double> x, codes, scale;
};
Stored stored(Device& device, const HostTensor& x, bool first, double step) {
  Builder b("store");
  const Type type{DType::kF32, x.shape};
  const std::vector<Val> made =
      b.call(find_op("moment_codes"),
             {b.input("x", type), b.input("w", type), b.input("g", type), b.input("step", kScalar)},
             {{"first", first}});
  b.output("codes", made[0]);
  b.output("scale", made[1]);
  b.output("y", b.call1("from_moment_codes", made, {{"first", first}}));
  const Tensors out = testing::run_program(device, b.finish(),
                                           {{"x", x},
                                            {"w", testing::random_tensor(type, "w")},
                                            {"g", testing::random_tensor(type, "g")},
                                            {"step", number(step)}});
  return {to_doubles(out.at("y")), to_doubles(out.at("codes")), to_doubles(out.at("scale"))};
}

// The distance of a number within a block of this scale to the next one.
double spacing(double x, double scale, bool first) {
  const int top = first ? 7 : 15;
  const int exponent = x == 0 ? -1000 : std::ilogb(std::abs(x) / scale);
  return scale * std::ldexp(1.0, std::max(exponent, 1 - top) - 4);
}

TEST_P(MomentCodesTest, ANumberBecomesANeighbourAndIsRightOnAverage) {
  constexpr std::int64_t kCount = 40000 + 5;  // the last block is short
  const auto on = device();
  for (const bool first : {true, false}) {
    const HostTensor x =
        testing::random_tensor({DType::kF32, {kCount}}, "x", first ? -1.0 : 0.001, 1.0);
    const std::vector<double> wanted = to_doubles(x);
    const Stored now = stored(*on, x, first, 3), next = stored(*on, x, first, 4);
    EXPECT_NE(now.codes, next.codes) << "the noise of another step";
    double sum = 0, squares = 0, correlation = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const double scale = now.scale[i / kCodedBlock];
      const double apart = spacing(wanted[i], scale, first);
      const double error = (now.x[i] - wanted[i]) / apart;
      ASSERT_LT(std::abs(error), 1.0) << i;
      sum += error;
      squares += error * error;
      correlation += error * (next.x[i] - wanted[i]) / apart;
    }
    // An error has a variance of 1/6, and a product of two of 1/30 at most: five deviations.
    EXPECT_NEAR(sum / kCount, 0.0, 5 * std::sqrt(1.0 / 6 / kCount));
    EXPECT_NEAR(squares / kCount, 1.0 / 6, 0.01);
    EXPECT_NEAR(correlation / kCount, 0.0, 5 * std::sqrt(1.0 / 30 / kCount));
  }
}

// Powers of two as scales: what is a code in one block is one in another.
TEST_P(MomentCodesTest, WhatWasStoredOnceIsStoredAgainExactly) {
  const auto on = device();
  for (const bool first : {true, false}) {
    HostTensor x = testing::random_tensor({DType::kF32, {1000}}, "x", first ? -1.0 : 0.0, 1.0);
    x.as<float>()[300] = 500.0f;
    const Stored once = stored(*on, x, first, 0);
    for (const double scale : once.scale) EXPECT_EQ(scale, std::exp2(std::ilogb(scale)));
    const Stored again = stored(*on, from_doubles(DType::kF32, {1000}, once.x), first, 1);
    EXPECT_EQ(again.x, once.x);
  }
}

TEST_P(MomentCodesTest, EveryMagnitudeOfFloat32HasAScale) {
  const auto on = device();
  for (const bool first : {true, false}) {
    for (const double size : {0.0, 1e-45, 1e-38, 1e-20, 1.0, 1.9375, 1.94, 1e20, 1e38}) {
      const HostTensor x = from_doubles(DType::kF32, {2}, std::vector{size, size / 4});
      const Stored got = stored(*on, x, first, 0);
      const double least = std::ldexp(1.0, 20 - 127 - (first ? 10 : 18));  // of the least scale
      EXPECT_NEAR(got.x[0], size, size / 16 + least);
      // A value of m below half a code may become zero.
      const bool may_be_lost = first && size > 0 && size < least;
      EXPECT_TRUE(may_be_lost || (got.x[0] == 0) == (size == 0)) << size;
    }
    using Limits = std::numeric_limits<float>;
    for (const float odd : {Limits::infinity(), Limits::quiet_NaN(), 3e38f}) {
      const HostTensor x = from_doubles(DType::kF32, {129}, std::vector<double>(129, 1.0));
      HostTensor with = x;
      with.as<float>()[5] = odd;
      const Stored got = stored(*on, with, first, 0);
      EXPECT_TRUE(std::isnan(got.x[5])) << odd;
      EXPECT_EQ(got.x[128], 1.0) << "another block";
    }
  }
}

// --- updates ------------------------------------------------------------------------------------
// One tensor of `count` elements, its moments zero at first.
class Update {
 public:
  static constexpr double kRate = 1e-3;

  Update(Device& device, std::int64_t count) : device_(device) {
    Builder b("update");
    const Type wide{DType::kF32, {count}}, codes{DType::kU8, {count}},
        scales{DType::kF32, {coded_blocks(count)}};
    const std::vector<Val> states{b.parameter("p", wide), b.state("m", codes), b.state("v", codes),
                                  b.state("m.scale", scales), b.state("v.scale", scales)};
    std::vector<Val> operands{b.input("lr", kScalar), b.input("step_size", kScalar),
                              b.input("count", kScalar), states[0], b.input("g", wide)};
    operands.insert(operands.end(), states.begin() + 1, states.end());
    const std::vector<Val> out = b.call(find_op("adamw_8bit"), operands);
    for (std::size_t i = 0; i < states.size(); ++i) b.update(states[i], out[i]);
    program_ = b.finish();
    leaves_ = {{"p", testing::random_tensor(wide, "p")}, {"lr", number(kRate)}};
    for (const char* name : {"m", "v"}) leaves_[name] = HostTensor::zeros(DType::kU8, {count});
    for (const char* name : {"m.scale", "v.scale"}) {
      leaves_[name] = HostTensor::zeros(DType::kF32, {coded_blocks(count)});
    }
  }

  void step(const HostTensor& gradient) {
    const double n = ++steps_;
    leaves_["g"] = gradient;
    leaves_["count"] = number(n - 1);
    leaves_["step_size"] =
        number(kRate * std::sqrt(1 - std::pow(0.999, n)) / (1 - std::pow(0.9, n)));
    const Tensors after = testing::run_program(device_, program_, leaves_);
    for (const auto& [name, value] : after) leaves_[name] = value;
  }

  const HostTensor& at(const std::string& name) const { return leaves_.at(name); }
  std::vector<double> weights() const { return to_doubles(at("p")); }
  std::vector<double> moment(const std::string& name) const {
    Builder b("moment");
    const std::vector<Val> stored{b.input("codes", {at(name).dtype, at(name).shape}),
                                  b.input("scale", {DType::kF32, at(name + ".scale").shape})};
    b.output("x", b.call1("from_moment_codes", stored, {{"first", name == "m"}}));
    return to_doubles(testing::run_program(device_, b.finish(),
                                           {{"codes", at(name)}, {"scale", at(name + ".scale")}})
                          .at("x"));
  }

 private:
  Device& device_;
  Program program_;
  Tensors leaves_;
  double steps_ = 0;
};

TEST_P(MomentCodesTest, GradientsOfZeroLeaveMomentsAtZero) {
  const auto on = device();
  Update update(*on, 300);
  const HostTensor before = update.at("p");
  for (int i = 0; i < 3; ++i) update.step(HostTensor::zeros(DType::kF32, {300}));
  for (const char* name : {"m", "v"}) {
    EXPECT_EQ(update.moment(name), std::vector<double>(300, 0.0));
    EXPECT_EQ(update.at(name).bytes, HostTensor::zeros(DType::kU8, {300}).bytes);
  }
  EXPECT_EQ(update.at("p").bytes, before.bytes);
}

// To nearest, the second moments of a block would be zero beside one that is 10^12 times as large,
// and their weights moved by m / eps.
TEST_P(MomentCodesTest, AnOutlierDoesNotMakeItsNeighboursJump) {
  const auto on = device();
  Update update(*on, 256);
  HostTensor usual = testing::random_tensor({DType::kF32, {256}}, "g", 1e-3, 2e-3), odd = usual;
  odd.as<float>()[7] = 1e3f;
  std::vector<double> before = update.weights();
  for (int i = 0; i < 60; ++i) {
    update.step(i == 20 ? odd : usual);
    const std::vector<double> after = update.weights(), v = update.moment("v");
    for (std::size_t k = 0; k < after.size(); ++k) {
      EXPECT_GT(v[k], 0.0) << k;
      EXPECT_LT(std::abs(after[k] - before[k]), 2 * Update::kRate) << "step " << i << ", " << k;
    }
    before = after;
  }
}

// v times 0.999 is nearer to v than to any other code, so to nearest it never changes.
TEST_P(MomentCodesTest, ASlowDecayIsNotLost) {
  const auto on = device();
  constexpr std::int64_t kSteps = 200, kCount = 4096;
  Update update(*on, kCount);
  update.step(testing::random_tensor({DType::kF32, {kCount}}, "g", 0.1, 1.0));
  const std::vector<double> first = update.moment("v");
  for (std::int64_t i = 0; i < kSteps; ++i) update.step(HostTensor::zeros(DType::kF32, {kCount}));
  const std::vector<double> last = update.moment("v");
  double ratio = 0;
  for (std::size_t i = 0; i < first.size(); ++i) ratio += last[i] / first[i] / kCount;
  // An element is off by 9 %.
  EXPECT_NEAR(ratio, std::pow(0.999, kSteps), 5 * 0.09 / std::sqrt(kCount));
}

// docs/memory.md has the error, of the same walk as that of other moments (moments_test.cpp).
TEST_P(MomentCodesTest, WeightsFollowThoseOfFloat64) {
  constexpr std::int64_t kSteps = 900, kFall = 300, kCount = 1000;
  const auto on = device();
  Update update(*on, kCount);
  const std::vector<double> start = update.weights();
  std::vector<double> exact = start, m(start.size()), v(start.size());
  for (std::int64_t t = 0; t < kSteps; ++t) {
    const double size = t < kFall ? 1.0 : 0.05, n = static_cast<double>(t + 1);
    const HostTensor gradient =
        testing::random_tensor({DType::kF32, {kCount}}, fmt::format("g {}", t), -size, 1.5 * size);
    update.step(gradient);
    const std::vector<double> g = to_doubles(gradient);
    const double step = Update::kRate * std::sqrt(1 - std::pow(0.999, n)) / (1 - std::pow(0.9, n));
    for (std::size_t i = 0; i < g.size(); ++i) {
      m[i] = 0.9 * m[i] + 0.1 * g[i];
      v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
      exact[i] -= step * m[i] / (std::sqrt(v[i]) + 1e-8);
    }
  }
  const std::vector<double> got = update.weights();
  double squares = 0, moved = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    squares += std::pow(got[i] - exact[i], 2);
    moved += std::pow(exact[i] - start[i], 2);
  }
  RecordProperty("error", fmt::format("{:.1e}", std::sqrt(squares / moved)));
  EXPECT_LT(std::sqrt(squares / moved), 0.06);
}

}  // namespace
}  // namespace tracestep
