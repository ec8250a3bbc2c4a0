// AdamW's states in bfloat16, rounded at random: each result one of the two neighbours, right on
// average, and better than rounding to nearest. In bfloat16 and in 8 bits (moment_codes_test.cpp)
// the same bits however the step runs.
#include <cmath>

#include <gtest/gtest.h>

#include "exec/executor.h"
#include "ops/functions.h"
#include "ops/moment_codes.h"
#include "passes/optimizer.h"
#include "spec/step_program.h"
#include "support/backends.h"
#include "support/host_values.h"
#include "support/run_program.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

using testing::Tensors;
using testing::to_doubles;

class MomentsTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ops::register_all(); }
  std::unique_ptr<Device> device(int threads = 2) const {
    return testing::backend_named(GetParam()).make({.threads = threads});
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, MomentsTest, ::testing::ValuesIn(testing::backend_names()));

HostTensor number(double value) {
  return testing::from_doubles(DType::kF32, {}, std::vector{value});
}

// One update of `count` elements; `is_counted`: with the step's number, so rounded at random.
Program update_of(DType moments, bool is_counted, std::int64_t count) {
  Builder b("update");
  const Type wide{DType::kF32, {count}}, scalar{DType::kF32, {}};
  const Val p = b.parameter("p", wide), g = b.input("g", wide);
  const Val m = b.state("m", {moments, wide.shape}), v = b.state("v", {moments, wide.shape});
  std::vector<Val> operands{p, g, m, v, b.input("lr", scalar), b.input("step_size", scalar)};
  if (is_counted) {
    operands.push_back(ops::fill(b, 1.0, scalar));
    operands.push_back(ops::fill(b, 1.0, {DType::kBool, {}}));
    operands.push_back(b.input("count", scalar));
  }
  const std::vector<Val> out = b.call(find_op("adamw"), operands);
  for (std::size_t i = 0; i < 3; ++i) b.update(std::vector{p, m, v}[i], out[i]);
  return b.finish();
}

Tensors leaves_of(DType moments, std::int64_t count) {
  const Type wide{DType::kF32, {count}}, stored{moments, {count}};
  return {{"p", testing::random_tensor(wide, "p")},
          {"g", testing::random_tensor(wide, "g")},
          {"m", testing::random_tensor(stored, "m", -1.0, 1.0)},
          {"v", testing::random_tensor(stored, "v", 0.01, 1.0)},
          {"lr", number(1e-3)},
          {"step_size", number(1e-3)},
          {"count", number(0)}};
}

TEST_P(MomentsTest, AnUpdateRoundsToANeighbourAndIsRightOnAverage) {
  constexpr std::int64_t kCount = 40000;
  const auto on = device();
  Tensors leaves = leaves_of(DType::kBF16, kCount);
  const Program program = update_of(DType::kBF16, true, kCount);
  const Tensors rounded = testing::run_program(*on, program, leaves);
  leaves["count"] = number(1);
  const Tensors next = testing::run_program(*on, program, leaves);
  for (const char* state : {"m", "v"})
    leaves[state] = testing::converted(leaves.at(state), DType::kF32);
  const Tensors exact = testing::run_program(*on, update_of(DType::kF32, false, kCount), leaves);
  EXPECT_EQ(rounded.at("p").bytes, exact.at("p").bytes);
  std::vector<double> both;  // the errors of m and v in units of their spacing, multiplied
  for (const char* state : {"m", "v"}) {
    SCOPED_TRACE(state);
    EXPECT_NE(rounded.at(state).bytes, next.at(state).bytes) << "the noise of another step";
    const auto got = to_doubles(rounded.at(state)), wanted = to_doubles(exact.at(state));
    double sum = 0, correlation = 0;
    const auto other = to_doubles(next.at(state));
    both.resize(got.size(), 1.0);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double spacing = testing::ulp(DType::kBF16, wanted[i]);
      const double error = (got[i] - wanted[i]) / spacing;
      ASSERT_LT(std::abs(error), 1.0) << i;
      sum += error;
      correlation += error * (other[i] - wanted[i]) / spacing;
      both[i] *= error;
    }
    // An error has a variance of 1/6, and a product of two of 1/30 at most: five deviations.
    EXPECT_LT(std::abs(sum / kCount), 5 * std::sqrt(1.0 / 6 / kCount));
    EXPECT_LT(std::abs(correlation / kCount), 5 * std::sqrt(1.0 / 30 / kCount));
  }
  double correlation = 0;
  for (double product : both) correlation += product;
  EXPECT_LT(std::abs(correlation / kCount), 5 * std::sqrt(1.0 / 30 / kCount));
}

// v times 0.999 is nearer to v than to any other bfloat16, so to nearest it never changes.
TEST_P(MomentsTest, ASlowDecayIsNotLost) {
  const auto on = device();
  constexpr std::int64_t kSteps = 200, kCount = 2000;
  for (bool is_counted : {false, true}) {
    const Program program = update_of(DType::kBF16, is_counted, kCount);
    Tensors leaves = leaves_of(DType::kBF16, kCount);
    leaves["g"] = HostTensor::zeros(DType::kF32, {kCount});
    const std::vector<double> first = to_doubles(leaves.at("v"));
    for (std::int64_t i = 0; i < kSteps; ++i) {
      leaves["count"] = number(static_cast<double>(i));
      const Tensors after = testing::run_program(*on, program, leaves);
      for (const char* name : {"p", "m", "v"}) leaves[name] = after.at(name);
    }
    const std::vector<double> last = to_doubles(leaves.at("v"));
    double ratio = 0;
    for (std::size_t i = 0; i < first.size(); ++i) ratio += last[i] / first[i] / kCount;
    // An element is off by 3 %.
    EXPECT_NEAR(ratio, is_counted ? std::pow(0.999, kSteps) : 1.0, 4e-3);
  }
}

// Weights that AdamW moves by gradients whose size falls to a twentieth, as they do in training.
struct Walk {
  static constexpr std::int64_t kSteps = 900, kFall = 300, kCount = 1000;
  static constexpr double kRate = 1e-3, kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-8;

  static double step_size(std::int64_t t) {
    const auto n = static_cast<double>(t + 1);
    return kRate * std::sqrt(1 - std::pow(kBeta2, n)) / (1 - std::pow(kBeta1, n));
  }
  static HostTensor gradient(std::int64_t t) {
    const double size = t < kFall ? 1.0 : 0.05;
    return testing::random_tensor({DType::kF32, {kCount}}, fmt::format("g {}", t), -size,
                                  1.5 * size);
  }

  // In float64, by the formulas.
  static std::vector<double> exact(std::vector<double> p) {
    std::vector<double> m(p.size()), v(p.size());
    for (std::int64_t t = 0; t < kSteps; ++t) {
      const std::vector<double> g = to_doubles(gradient(t));
      for (std::size_t i = 0; i < p.size(); ++i) {
        m[i] = kBeta1 * m[i] + (1 - kBeta1) * g[i];
        v[i] = kBeta2 * v[i] + (1 - kBeta2) * g[i] * g[i];
        p[i] -= step_size(t) * m[i] / (std::sqrt(v[i]) + kEps);
      }
    }
    return p;
  }

  static std::vector<double> taken(Device& device, DType moments, bool is_counted) {
    const Program program = update_of(moments, is_counted, kCount);
    Tensors leaves = leaves_of(moments, kCount);
    for (const char* name : {"m", "v"}) leaves[name] = HostTensor::zeros(moments, {kCount});
    for (std::int64_t t = 0; t < kSteps; ++t) {
      leaves["g"] = gradient(t);
      leaves["step_size"] = number(step_size(t));
      leaves["count"] = number(static_cast<double>(t));
      const Tensors after = testing::run_program(device, program, leaves);
      for (const char* name : {"p", "m", "v"}) leaves[name] = after.at(name);
    }
    return to_doubles(leaves.at("p"));
  }
};

// docs/memory.md has the errors.
TEST_P(MomentsTest, WeightsFollowThoseOfFloat64) {
  const auto on = device();
  const std::vector<double> start = to_doubles(leaves_of(DType::kF32, Walk::kCount).at("p"));
  const std::vector<double> exact = Walk::exact(start);
  // Root of the mean square of the error, relative to that of the movement.
  const auto error_of = [&](DType moments, bool is_counted) {
    const std::vector<double> got = Walk::taken(*on, moments, is_counted);
    double squares = 0, moved = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      squares += std::pow(got[i] - exact[i], 2);
      moved += std::pow(exact[i] - start[i], 2);
    }
    return std::sqrt(squares / moved);
  };
  const double wide = error_of(DType::kF32, false), random = error_of(DType::kBF16, true),
               nearest = error_of(DType::kBF16, false);
  RecordProperty("errors", fmt::format("{:.1e} {:.1e} {:.1e}", wide, random, nearest));
  EXPECT_LT(wide, 1e-4);
  EXPECT_LT(random, 0.02);
  EXPECT_GT(nearest, 2.5 * random);
}

RunSpec step_of(const char* precision, Granularity ops, Moments moments) {
  RunSpec spec;
  spec.model = {.vocab = 31, .d_model = 16, .d_ff = 24, .layers = 2, .heads = 2};
  spec.shape = {.batch = 2, .context = 7};
  spec.precision = parse_precision("test", precision);
  spec.ops = ops;
  spec.optimizer.moments = moments;
  spec.optimizer.clip = 1.0;
  return spec;
}

struct Outcome {
  Tensors states;
  std::int64_t predicted_peak = 0, measured_peak = 0;
};

// The weights and AdamW's states after three steps.
Outcome three_steps(const RunSpec& spec, Device& device) {
  Outcome out;
  Store store(device);
  const auto executor = make_executor(spec.executor, store, step_program(spec, device));
  initialize_parameters(store, 1);
  initialize_states(store);
  out.predicted_peak = executor->predicted_peak_bytes();
  for (int round = 0; round < 3; ++round) {
    for (const char* name : {"tokens", "targets"}) {
      executor->set_input(name, testing::random_tensor({DType::kI64, {2, 7}},
                                                       fmt::format("{} {}", name, round), 0, 30));
    }
    for (const char* name : {"lr", "step_size"}) executor->set_scalar(name, 0.01);
    device.allocator().reset_peak();
    executor->run();
    device.synchronize();
    executor->release_outputs();
    out.measured_peak =
        std::max(out.measured_peak, device.allocator().stats().peak_requested_bytes);
  }
  for (LeafKind kind : {LeafKind::kParameter, LeafKind::kState}) {
    for (const std::string& name : store.names(kind)) {
      if (!name.starts_with("shadow.")) out.states[name] = store.get(name);
    }
  }
  return out;
}

void expect_one_result(const RunSpec& step, Device& two, Device& three) {
  RunSpec spec = step;
  const Outcome first = three_steps(spec, two);
  EXPECT_EQ(first.measured_peak, first.predicted_peak);
  const bool is_coded = spec.optimizer.moments == Moments::k8Bit;
  EXPECT_EQ(first.states.at("adamw.m.lm_head.weight").dtype, is_coded ? DType::kU8 : DType::kBF16);
  EXPECT_EQ(first.states.contains("adamw.v.lm_head.weight.scale"), is_coded);
  EXPECT_EQ(to_doubles(first.states.at(std::string(kStepCount)))[0], 3.0);
  std::vector<Outcome> others{three_steps(spec, three)};
  spec.offload = Offload::kOptimizer;
  others.push_back(three_steps(spec, two));
  spec.offload = Offload::kNone;
  spec.updates = UpdateTime::kEarly;
  spec.optimizer.clip = 0.0;  // whose factor needs all gradients
  const Outcome early = three_steps(spec, two);
  spec.updates = UpdateTime::kEnd;
  EXPECT_EQ(three_steps(spec, two).states.at("lm_head.weight").bytes,
            early.states.at("lm_head.weight").bytes);
  spec.optimizer.clip = step.optimizer.clip;
  // Joins the updates of all tensors; what rounds products otherwise stays off.
  spec.executor = ExecutorKind::kCompiled;
  spec.compile_passes = {"shadow", "join"};
  others.push_back(three_steps(spec, two));
  for (const Outcome& other : others) {
    EXPECT_EQ(other.measured_peak, other.predicted_peak);
    for (const auto& [name, value] : first.states) {
      EXPECT_EQ(value.bytes, other.states.at(name).bytes) << name;
    }
  }
}

TEST_P(MomentsTest, EveryExecutorAndThreadCountGivesTheSameBits) {
  const auto two = device(), three = device(3);
  for (const Moments moments : {Moments::kBF16, Moments::k8Bit}) {
    for (const char* precision : {"fp32", "bf16"}) {
      for (Granularity ops : {Granularity::kFused, Granularity::kPrimitive}) {
        SCOPED_TRACE(fmt::format("{} {}", name_of(moments), precision));
        expect_one_result(step_of(precision, ops, moments), *two, *three);
      }
    }
  }
}

// Eight bytes of each parameter become four, or two and two scales for each 128 of them.
TEST_P(MomentsTest, AreStoredInTheirBytes) {
  const auto on = device();
  const auto state_bytes = [&](Moments moments) {
    const RunSpec spec = step_of("fp32", Granularity::kFused, moments);
    const Program program = step_program(spec, *on);
    std::int64_t out = 0;
    for (ValueId id : program.leaves) {
      const Value& leaf = program.value(id);
      if (leaf.leaf == LeafKind::kState && !leaf.type.shape.empty()) out += leaf.type.bytes();
    }
    return out;
  };
  std::int64_t parameters = 0, blocks = 0;
  const Program program = step_program(step_of("fp32", Granularity::kFused, Moments::kF32), *on);
  for (ValueId id : program.leaves) {
    if (program.value(id).leaf != LeafKind::kParameter) continue;
    parameters += program.type(id).count();
    blocks += coded_blocks(program.type(id).count());
  }
  EXPECT_EQ(state_bytes(Moments::kF32), 8 * parameters);
  EXPECT_EQ(state_bytes(Moments::kBF16), 4 * parameters);
  EXPECT_EQ(state_bytes(Moments::k8Bit), 2 * parameters + 8 * blocks);
}

}  // namespace
}  // namespace tracestep
