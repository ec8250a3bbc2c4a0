#include "passes/autograd.h"

#include <cmath>

#include <gtest/gtest.h>

#include "backends/reference/reference_device.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ops/functions.h"
#include "support/host_values.h"
#include "support/run_program.h"

namespace tracestep {
namespace {

using testing::reference_values;
using testing::Tensors;
using testing::to_doubles;

class AutogradTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static double loss_of(const Program& program, const Tensors& leaves) {
    return to_doubles(reference_values(program, leaves).at("loss"))[0];
  }

  // Every gradient of `text` against central differences in float64.
  static void check_differences(const std::string& text) {
    const Program program = parse_program(text);
    const Program with_gradients = autograd(program);
    verify(with_gradients);
    Tensors leaves = testing::random_leaves(program, 0.2, 1.5);
    const Tensors results = reference_values(with_gradients, leaves);
    for (auto& [name, value] : leaves) {
      const auto found = results.find(gradient_name(name));
      if (found == results.end()) continue;
      const std::vector<double> analytic = to_doubles(found->second);
      const std::vector<double> at = to_doubles(value);
      for (std::size_t i = 0; i < at.size(); ++i) {
        constexpr double kStep = 1e-5;
        std::vector<double> moved = at;
        moved[i] = at[i] + kStep;
        Tensors shifted = leaves;
        shifted[name] = testing::from_doubles(DType::kF64, value.shape, moved);
        const double above = loss_of(program, shifted);
        moved[i] = at[i] - kStep;
        shifted[name] = testing::from_doubles(DType::kF64, value.shape, moved);
        const double below = loss_of(program, shifted);
        EXPECT_NEAR(analytic[i], (above - below) / (2 * kStep), 1e-6) << name << "[" << i << "]";
      }
    }
  }
};

TEST_F(AutogradTest, AValueReadTwiceGetsTheSumOfItsGradients) {
  check_differences(R"(program "p" {
    parameter %x : f64[3]
    %0 : f64[3] = mul(%x, %x)
    %1 : f64[3] = exp(%x)
    %2 : f64[3] = add(%0, %1)
    %3 : f64[] = sum(%2) {axes=[0]}
    output "loss" = %3
  })");
}

TEST_F(AutogradTest, GradientsFlowThroughViewsAndBroadcasts) {
  check_differences(R"(program "p" {
    parameter %x : f64[2,3]
    parameter %b : f64[1,2]
    %0 : f64[3,2] = permute(%x) {axes=[1,0]}
    %1 : f64[3,2] = broadcast(%b) {shape=[3,2]}
    %2 : f64[3,2] = mul(%0, %1)
    %3 : f64[2,2] = slice(%2) {axis=0, start=1, stop=3}
    %4 : f64[4] = reshape(%3) {shape=[4]}
    %5 : f64[4] = square(%4)
    %6 : f64[] = sum(%5) {axes=[0]}
    output "loss" = %6
  })");
}

TEST_F(AutogradTest, MatmulIsDifferentiatedInEveryTransposition) {
  for (const char* attrs :
       {"", "{transpose_a=true}", "{transpose_b=true}", "{transpose_a=true, transpose_b=true}"}) {
    const bool ta = std::string(attrs).find("transpose_a") != std::string::npos;
    const bool tb = std::string(attrs).find("transpose_b") != std::string::npos;
    check_differences(fmt::format(R"(program "p" {{
      parameter %a : f64[2,{}]
      parameter %b : f64[2,{}]
      %0 : f64[2,3,4] = matmul(%a, %b) {}
      %1 : f64[2,3,4] = square(%0)
      %2 : f64[] = sum(%1) {{axes=[0,1,2]}}
      output "loss" = %2
    }})",
                                  ta ? "2,3" : "3,2", tb ? "4,2" : "2,4", attrs));
  }
}

TEST_F(AutogradTest, AParameterThatTheLossIgnoresGetsZeros) {
  const Program out = autograd(parse_program(R"(program "p" {
    parameter %x : f64[2]
    parameter %unused : f64[3]
    %0 : f64[] = sum(%x) {axes=[0]}
    output "loss" = %0
  })"));
  const Tensors results = reference_values(out, testing::random_leaves(out));
  EXPECT_EQ(to_doubles(results.at("grad.unused")), std::vector<double>(3, 0.0));
}

TEST_F(AutogradTest, AConstantHasNoGradientAndPassesNone) {
  Builder b("constants");
  const Val w = b.parameter("w", {DType::kF32, {2, 3}});
  const Val table = b.leaf(LeafKind::kConstant, "table", {DType::kF32, {2, 3}});
  b.output("loss", ops::sum(ops::mul(w, ops::unary("exp", table)), {0, 1}));
  const Program program = autograd(b.finish());
  EXPECT_NE(program.find_output("grad.w"), kNoValue);
  EXPECT_EQ(program.find_output("grad.table"), kNoValue);
  for (const Node& node : program.nodes) {
    const bool is_of_exp = node.op->name == "exp";
    EXPECT_TRUE(!is_of_exp || node.origin().phase == Phase::kForward);
  }
}

TEST_F(AutogradTest, GradientNodesInheritThePathOfTheirForwardNode) {
  const Program out = autograd(parse_program(R"(program "p" {
    parameter %x : f64[2]
    %0 : f64[2] = exp(%x) @ layers.0.attn forward
    %1 : f64[] = sum(%0) {axes=[0]} @ loss forward
    output "loss" = %1
  })"));
  const Node& node = out.node(out.value(out.find_output("grad.x")).producer);
  EXPECT_EQ(node.origin().path, "layers.0.attn");
  EXPECT_EQ(node.origin().phase, Phase::kBackward);
  EXPECT_EQ(node.made_by, "autograd");
}

TEST_F(AutogradTest, PersistentGradientsAreStatesAndAccumulateOnRequest) {
  const Program program = parse_program(R"(program "p" {
    parameter %x : f64[2]
    %0 : f64[2] = square(%x)
    %1 : f64[] = sum(%0) {axes=[0]}
    output "loss" = %1
  })");
  Tensors leaves = testing::random_leaves(program);
  leaves["grad.x"] = testing::from_doubles(DType::kF64, {2}, std::vector<double>{10.0, 20.0});
  const std::vector<double> x = to_doubles(leaves.at("x"));
  const auto kept =
      reference_values(autograd(program, {.kind = GradientKind::kPersistent}), leaves);
  EXPECT_DOUBLE_EQ(to_doubles(kept.at("grad.x"))[1], 2 * x[1]);
  const auto added =
      reference_values(autograd(program, {.kind = GradientKind::kAccumulate}), leaves);
  EXPECT_DOUBLE_EQ(to_doubles(added.at("grad.x"))[1], 20.0 + 2 * x[1]);
}

TEST_F(AutogradTest, EachTermOfAGradientIsAddedToItsState) {
  const Program program = parse_program(R"(program "p" {
    parameter %x : f64[2]
    %0 : f64[2] = square(%x)
    %1 : f64[2] = exp(%x)
    %2 : f64[2] = add(%0, %1)
    %3 : f64[] = sum(%2) {axes=[0]}
    output "loss" = %3
  })");
  const Program out = autograd(program, {.kind = GradientKind::kAccumulate});
  ASSERT_EQ(out.updates.size(), 1u);
  const Node& last = out.node(out.value(out.updates[0].value).producer);
  const Node& first = out.node(out.value(last.inputs[0]).producer);
  EXPECT_EQ(out.value(first.inputs[0]).name, "grad.x");
  Tensors leaves = testing::random_leaves(program);
  leaves["grad.x"] = testing::from_doubles(DType::kF64, {2}, std::vector<double>{10.0, 20.0});
  const std::vector<double> x = to_doubles(leaves.at("x"));
  EXPECT_NEAR(to_doubles(reference_values(out, leaves).at("grad.x"))[1],
              20.0 + 2 * x[1] + std::exp(x[1]), 1e-12);
}

TEST_F(AutogradTest, AMissingLossAndAnOpWithoutARuleAreNamed) {
  const auto message = [](const std::string& text) -> std::string {
    try {
      autograd(parse_program(text));
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_NE(message(R"(program "p" { parameter %x : f64[2] output "y" = %x })").find("'loss'"),
            std::string::npos);
  EXPECT_NE(message(R"(program "p" {
    parameter %x : f64[2]
    %0 : f64[] = global_norm(%x)
    output "loss" = %0
  })")
                .find("global_norm"),
            std::string::npos);
}

}  // namespace
}  // namespace tracestep
