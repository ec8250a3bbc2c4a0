// Updated weights in bfloat16, rounded at random: each one of the two neighbours, right on average,
// and the same bits however the step runs.
#include <cmath>

#include <gtest/gtest.h>

#include "exec/executor.h"
#include "ops/functions.h"
#include "passes/form_passes.h"
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

class WeightRoundingTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ops::register_all(); }
  std::unique_ptr<Device> device(int threads = 2) const {
    return testing::backend_named(GetParam()).make({.threads = threads});
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, WeightRoundingTest,
                         ::testing::ValuesIn(testing::backend_names()));

HostTensor number(double value) {
  return testing::from_doubles(DType::kF32, {}, std::vector{value});
}

// One update of `count` weights of this dtype; of bfloat16 at random.
Program update_of(DType weights, std::int64_t count) {
  Builder b("update");
  const Type type{weights, {count}}, wide{DType::kF32, {count}}, scalar{DType::kF32, {}};
  const Val p = b.parameter("p", type), g = b.input("g", {DType::kBF16, {count}});
  const Val m = b.state("m", wide), v = b.state("v", wide);
  const std::vector<Val> out = b.call(
      find_op("adamw"),
      {p, g, m, v, b.input("lr", scalar), b.input("step_size", scalar), ops::fill(b, 1.0, scalar),
       ops::fill(b, 1.0, {DType::kBool, {}}), b.input("count", scalar)},
      {{"weight_decay", 0.1}, {"rounds_weight", true}});
  for (std::size_t i = 0; i < 3; ++i) b.update(std::vector{p, m, v}[i], out[i]);
  return b.finish();
}

Tensors leaves_of(std::int64_t count) {
  const Type wide{DType::kF32, {count}}, narrow{DType::kBF16, {count}};
  return {{"p", testing::random_tensor(narrow, "p")},
          {"g", testing::random_tensor(narrow, "g")},
          {"m", testing::random_tensor(wide, "m", -1.0, 1.0)},
          {"v", testing::random_tensor(wide, "v", 0.01, 1.0)},
          {"lr", number(1e-5)},
          {"step_size", number(1e-5)},
          {"count", number(0)}};
}

TEST_P(WeightRoundingTest, AnUpdateRoundsToANeighbourAndIsRightOnAverage) {
  constexpr std::int64_t kCount = 40000;
  const auto on = device();
  Tensors leaves = leaves_of(kCount);
  const Program program = update_of(DType::kBF16, kCount);
  const Tensors rounded = testing::run_program(*on, program, leaves);
  leaves["count"] = number(1);
  const Tensors next = testing::run_program(*on, program, leaves);
  EXPECT_NE(rounded.at("p").bytes, next.at("p").bytes) << "the noise of another step";
  leaves["p"] = testing::converted(leaves.at("p"), DType::kF32);
  const Tensors exact = testing::run_program(*on, update_of(DType::kF32, kCount), leaves);
  EXPECT_EQ(rounded.at("m").bytes, exact.at("m").bytes) << "moments in float32 are not rounded";
  const auto got = to_doubles(rounded.at("p")), wanted = to_doubles(exact.at("p")),
             other = to_doubles(next.at("p"));
  double sum = 0, correlation = 0, variance = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double spacing = testing::ulp(DType::kBF16, wanted[i]);
    const double error = (got[i] - wanted[i]) / spacing;
    ASSERT_LT(std::abs(error), 1.0) << i;
    sum += error;
    variance += error * error;
    correlation += error * (other[i] - wanted[i]) / spacing;
  }
  // Five deviations of a mean, and of one of products.
  EXPECT_LT(std::abs(sum), 5 * std::sqrt(variance));
  EXPECT_LT(std::abs(correlation), 5 * std::sqrt(variance));
}

// Updates of a 512th of the spacing, which is 2^-7: to nearest nothing would ever move.
TEST_P(WeightRoundingTest, ManySmallUpdatesAddUp) {
  const auto on = device();
  constexpr std::int64_t kSteps = 300, kCount = 3000;
  const Program program = update_of(DType::kBF16, kCount);
  Tensors leaves = leaves_of(kCount);
  leaves["p"] = testing::random_tensor({DType::kBF16, {kCount}}, "p", 1.0, 2.0);
  const std::vector<double> first = to_doubles(leaves.at("p"));
  leaves["g"] = testing::random_tensor({DType::kBF16, {kCount}}, "g", 0.5, 1.0);
  leaves["lr"] = number(0);
  for (std::int64_t i = 0; i < kSteps; ++i) {
    // A step of about 2^-16, as m / √v is 1.
    leaves["m"] = leaves["v"] =
        testing::from_doubles(DType::kF32, {kCount}, std::vector(kCount, 1.0));
    leaves["count"] = number(static_cast<double>(i));
    leaves["step_size"] = number(0x1p-16);
    leaves["p"] = testing::run_program(*on, program, leaves).at("p");
  }
  double moved = 0;
  const std::vector<double> last = to_doubles(leaves.at("p"));
  for (std::size_t i = 0; i < last.size(); ++i) moved += (first[i] - last[i]) / kCount;
  // m and v are averaged with the gradient, which moves them little in one step.
  EXPECT_NEAR(moved / (kSteps * 0x1p-16), 1.0, 0.08);
}

// The kernel and the ops that it stands for take the same noise. Their updates may differ in the
// last bit of float32, which seldom decides.
TEST_P(WeightRoundingTest, TheKernelRoundsAsItsDecompositionDoes) {
  constexpr std::int64_t kCount = 20000;
  const auto on = device();
  const Program program = update_of(DType::kBF16, kCount);
  const Program simple = decompose(program, [](const OpDef& op) { return op.name == "adamw"; });
  ASSERT_TRUE(std::ranges::any_of(
      simple.nodes, [](const Node& node) { return node.op->name == "stochastic_round"; }));
  const Tensors leaves = leaves_of(kCount);
  const auto whole = to_doubles(testing::run_program(*on, program, leaves).at("p")),
             parts = to_doubles(testing::run_program(*on, simple, leaves).at("p"));
  std::int64_t differing = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) differing += whole[i] != parts[i] ? 1 : 0;
  EXPECT_LT(differing, kCount / 1000);
}

TEST_P(WeightRoundingTest, RoundingAloneHasTheBitsOfTheCpu) {
  constexpr std::int64_t kCount = 5000;
  Builder b("round");
  const Type wide{DType::kF32, {kCount}};
  const Val x = b.input("x", wide), w = b.input("w", {DType::kBF16, {kCount}});
  b.output("y", b.call1("stochastic_round", {x, w, x, b.input("count", {DType::kF32, {}})},
                        {{"dtype", DType::kBF16}, {"of_weight", true}}));
  const Program program = b.finish();
  const Tensors leaves{{"x", testing::random_tensor(wide, "x")},
                       {"w", testing::random_tensor({DType::kBF16, {kCount}}, "w")},
                       {"count", number(7)}};
  const auto cpu = testing::backend_named("cpu").make({.threads = 1});
  EXPECT_EQ(testing::run_program(*device(), program, leaves).at("y").bytes,
            testing::run_program(*cpu, program, leaves).at("y").bytes);
}

TEST(WeightRoundingOpTest, ItNeedsTheNumberOfTheStep) {
  ops::register_all();
  Builder b("update");
  const Type type{DType::kBF16, {3}}, scalar{DType::kF32, {}};
  const Val p = b.parameter("p", type), m = b.state("m", type), v = b.state("v", type);
  EXPECT_THROW(b.call(find_op("adamw"), {p, p, m, v, b.input("lr", scalar), b.input("s", scalar)},
                      {{"rounds_weight", true}}),
               Error);
}

RunSpec step_of(Granularity ops, Moments moments) {
  RunSpec spec;
  spec.model = {.vocab = 31, .d_model = 16, .d_ff = 24, .layers = 2, .heads = 2};
  spec.shape = {.batch = 2, .context = 7};
  spec.precision = {.parameters = DType::kBF16};
  spec.ops = ops;
  spec.optimizer.moments = moments;
  return spec;
}

// The weights and AdamW's states after three steps.
Tensors three_steps(const RunSpec& spec, Device& device) {
  Tensors out;
  Store store(device);
  const Program program =
      program_for(forward_program(spec), spec, device, {.rounds_weights = true});
  const auto executor = make_executor(spec.executor, store, program);
  initialize_parameters(store, 1);
  initialize_states(store);
  for (int round = 0; round < 3; ++round) {
    for (const char* name : {"tokens", "targets"}) {
      executor->set_input(name, testing::random_tensor({DType::kI64, {2, 7}},
                                                       fmt::format("{} {}", name, round), 0, 30));
    }
    for (const char* name : {"lr", "step_size"}) executor->set_scalar(name, 1e-5);
    executor->run();
    device.synchronize();
    executor->release_outputs();
  }
  for (LeafKind kind : {LeafKind::kParameter, LeafKind::kState}) {
    for (const std::string& name : store.names(kind)) out[name] = store.get(name);
  }
  return out;
}

TEST_P(WeightRoundingTest, EveryExecutorAndThreadCountGivesTheSameBits) {
  const auto two = device(), three = device(3);
  for (const Moments moments : kAll<Moments>) {
    for (Granularity ops : {Granularity::kFused, Granularity::kPrimitive}) {
      SCOPED_TRACE(name_of(moments));
      RunSpec spec = step_of(ops, moments);
      const Tensors first = three_steps(spec, *two);
      EXPECT_EQ(to_doubles(first.at(std::string(kStepCount)))[0], 3.0);
      std::vector<Tensors> others{three_steps(spec, *three)};
      spec.offload = Offload::kOptimizer;
      others.push_back(three_steps(spec, *two));
      spec.offload = Offload::kNone;
      spec.updates = UpdateTime::kEarly;
      others.push_back(three_steps(spec, *two));
      spec.updates = UpdateTime::kEnd;
      // Joins the updates of all tensors; what rounds products otherwise stays off.
      spec.executor = ExecutorKind::kCompiled;
      spec.compile_passes = {"join"};
      others.push_back(three_steps(spec, *two));
      for (const Tensors& other : others) {
        for (const auto& [name, value] : first)
          EXPECT_EQ(value.bytes, other.at(name).bytes) << name;
      }
    }
  }
}

}  // namespace
}  // namespace tracestep
