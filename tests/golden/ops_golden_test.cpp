// The reference back end and the gradient rules against values computed by PyTorch: the oracle of
// all other tests is itself checked here, once.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "ops/functions.h"
#include "passes/autograd.h"
#include "passes/form_passes.h"
#include "support/host_values.h"
#include "support/paths.h"
#include "support/run_program.h"
#include "weights/safetensors.h"

namespace tracestep::testing {
namespace {

// An entry of ops.safetensors: how its result is computed from its inputs.
struct Golden {
  std::string name;
  std::vector<std::string> inputs;
  std::function<Val(std::span<const Val>)> compute;
  std::string result = "y";
};

const SafetensorsFile& fixtures() {
  static const SafetensorsFile file(source_folder() / "tests/golden/ops.safetensors");
  return file;
}

HostTensor fixture(const Golden& golden, const std::string& tensor) {
  return fixtures().read(golden.name + "." + tensor);
}

double scalar_fixture(const std::string& name) {
  return to_doubles(fixtures().read(name))[0];
}

Val rotated(Val x, double theta, bool inverse) {
  const auto table =
      ops::rope_table(*x.builder, x.dim(-2), x.dim(-1), {.theta = theta}, DType::kF64);
  return ops::rope(x, table, inverse);
}

std::vector<Golden> goldens() {
  ops::register_all();
  const auto softmax = [](auto x) { return ops::softmax(x[0]); };
  const auto rms_norm = [](auto x) { return ops::rms_norm(x[0], x[1], 1e-5); };
  const auto causal_softmax = [](auto x) {
    return ops::softmax(x[0], {scalar_fixture("causal_softmax.scale"), true});
  };
  const auto attention = [](bool causal) {
    return [causal](auto x) { return ops::attention(x[0], x[1], x[2], {.causal = causal}); };
  };
  return {{"softmax", {"x"}, softmax},
          {"softmax_large", {"x"}, softmax},
          {"causal_softmax", {"x"}, causal_softmax},
          {"log_sum_exp", {"x"}, [](auto x) { return ops::log_sum_exp(x[0]); }},
          {"rms_norm", {"x", "w"}, rms_norm},
          {"rms_norm_small", {"x", "w"}, rms_norm},
          {"silu", {"x"}, [](auto x) { return ops::silu(x[0]); }},
          {"swiglu", {"gate", "up"}, [](auto x) { return ops::swiglu(x[0], x[1]); }},
          {"rope", {"x"}, [](auto x) { return rotated(x[0], 1e4, false); }},
          {"rope_inverse", {"x"}, [](auto x) { return rotated(x[0], 1e4, true); }},
          {"attention", {"q", "k", "v"}, attention(false)},
          {"causal_attention", {"q", "k", "v"}, attention(true)},
          {"cross_entropy",
           {"logits", "targets"},
           [](auto x) { return ops::cross_entropy(x[0], x[1]); },
           "loss"},
          {"embedding", {"table", "ids"}, [](auto x) { return ops::gather(x[0], x[1]); }}};
}

// Outputs: the result under its name, and "loss" = Σ result · dy when there is a dy.
Program program_of(const Golden& golden) {
  Builder b(golden.name);
  std::vector<Val> inputs;
  for (const std::string& name : golden.inputs) {
    const HostTensor value = fixture(golden, name);
    inputs.push_back(b.input(name, {value.dtype, value.shape}));
  }
  Val result = golden.compute(inputs);
  b.output(golden.result, result);
  if (fixtures().find(golden.name + ".dy") != nullptr) {
    Dims all;
    for (int i = 0; i < result.shape().rank(); ++i) all.push_back(i);
    result = ops::sum(ops::mul(result, b.input("dy", result.type())), all);
  }
  if (result.shape().empty() && golden.result != "loss") b.output("loss", result);
  return b.finish();
}

Tensors leaves_of(const Golden& golden, const Program& program) {
  Tensors out;
  for (ValueId id : program.leaves) {
    const std::string& name = program.value(id).name;
    out[name] = fixture(golden, name);
  }
  return out;
}

void expect_close(const Tensors& actual, const std::string& name, const HostTensor& expected) {
  const std::vector<double> want = to_doubles(expected);
  EXPECT_LE(max_difference(to_doubles(actual.at(name)), want), 1e-13 * (1 + max_abs(want))) << name;
}

void expect_gradients(const Golden& golden, const Tensors& actual) {
  for (const std::string& name : golden.inputs) {
    if (fixtures().find(golden.name + ".d" + name) == nullptr) continue;
    expect_close(actual, gradient_name(name), fixture(golden, "d" + name));
  }
}

class OpsGoldenTest : public ::testing::TestWithParam<Golden> {};

TEST_P(OpsGoldenTest, TheReferenceAgreesWithPyTorch) {
  const Golden& golden = GetParam();
  const Program program = program_of(golden);
  const Tensors leaves = leaves_of(golden, program);
  expect_close(reference_values(program, leaves), golden.result, fixture(golden, golden.result));
  if (program.find_output("loss") == kNoValue) return;

  const auto has_no_rule = [](const OpDef& op) { return !op.gradient; };
  const Program whole = decompose(program, has_no_rule);
  expect_gradients(golden, reference_values(autograd(whole, {.inputs = true}), leaves));
  const Program parts = decompose(program, [](const OpDef&) { return true; });
  expect_gradients(golden, reference_values(autograd(parts, {.inputs = true}), leaves));
}

INSTANTIATE_TEST_SUITE_P(All, OpsGoldenTest, ::testing::ValuesIn(goldens()),
                         [](const auto& of) { return of.param.name; });

TEST(AdamwGoldenTest, ThreeUpdatesAgreeWithPyTorch) {
  ops::register_all();
  const auto value = [](const std::string& name) { return fixtures().read("adamw." + name); };
  const auto number = [](const std::string& name) { return scalar_fixture("adamw." + name); };
  const Type type{DType::kF64, {3, 5}}, scalar{DType::kF64, {}};
  Builder b("adamw");
  const Val p = b.parameter("p", type), g = b.input("g", type);
  const Val m = b.state("m", type), v = b.state("v", type);
  const auto updated =
      b.call(find_op("adamw"), {p, g, m, v, b.input("lr", scalar), b.input("step_size", scalar)},
             {{"beta1", number("beta1")},
              {"beta2", number("beta2")},
              {"eps", number("eps")},
              {"weight_decay", number("weight_decay")}});
  b.update(p, updated[0]);
  b.update(m, updated[1]);
  b.update(v, updated[2]);
  const Program program = b.finish();

  Tensors now{{"p", value("p0")},
              {"m", HostTensor::zeros(DType::kF64, {3, 5})},
              {"v", HostTensor::zeros(DType::kF64, {3, 5})},
              {"lr", value("lr")}};
  for (int t = 1; t <= 3; ++t) {
    const double step_size = number("lr") * std::sqrt(1 - std::pow(number("beta2"), t)) /
                             (1 - std::pow(number("beta1"), t));
    now["g"] = value(fmt::format("g{}", t));
    now["step_size"] = from_doubles(DType::kF64, {}, std::vector{step_size});
    for (auto& [name, tensor] : reference_values(program, now)) now[name] = tensor;
    for (const char* name : {"p", "m", "v"}) {
      expect_close(now, name, value(fmt::format("{}{}", name, t)));
    }
  }
}

}  // namespace
}  // namespace tracestep::testing
