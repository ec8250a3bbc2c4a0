// Gradient rules and decompositions in float64, on the oracle: what every other back end inherits.
#include <gtest/gtest.h>

#include <cmath>

#include "backends/op_matrix.h"
#include "ops/functions.h"
#include "passes/autograd.h"
#include "passes/form_passes.h"
#include "support/host_values.h"

namespace tracestep::testing {
namespace {

bool always(const OpDef&) {
  return true;
}

bool has_gradient(const OpTest& test) {
  return !test.gradient_outputs.empty();
}

bool is_composite(const OpTest& test) {
  return static_cast<bool>(find_op(test.op).decompose);
}

// The program with gradients of all inputs; what has no gradient rule is decomposed first.
Program differentiated(const Program& program) {
  return autograd(decompose(program, [](const OpDef& op) { return !op.gradient; }),
                  {.inputs = true});
}

bool is_cast_to_steps(const OpCase& c) {
  const AttrValue* to = c.attrs.find("dtype");
  return to != nullptr && (!is_floating(std::get<DType>(*to)) || is_float8(std::get<DType>(*to)));
}

double loss_at(const Program& program, Tensors leaves, const Tensors& direction, double step) {
  for (auto& [name, tensor] : leaves) {
    const auto found = direction.find(name);
    if (found == direction.end()) continue;
    auto values = tensor.as<double>();
    const auto delta = found->second.as<double>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += step * delta[i];
  }
  return to_doubles(reference_values(program, leaves).at("loss"))[0];
}

// A direction through all operands that gradients are made for.
Tensors random_direction(const Tensors& leaves, const OpCase& c) {
  Tensors out;
  for (const auto& [name, tensor] : leaves) {
    const bool is_operand = name.front() == 'x';
    if (!is_floating(tensor.dtype)) continue;
    if (is_operand &&
        !c.operands[static_cast<std::size_t>(std::stoi(name.substr(1)))].differentiable) {
      continue;
    }
    out[name] = random_tensor({DType::kF64, tensor.shape}, "direction of " + name, -1.0, 1.0);
  }
  return out;
}

class OpGradientTest : public ::testing::TestWithParam<OpTest> {};
class CompositeTest : public ::testing::TestWithParam<OpTest> {};
class DifferentiableCompositeTest : public ::testing::TestWithParam<OpTest> {};

TEST_P(OpGradientTest, TheRuleAgreesWithDirectionalDifferences) {
  const OpTest& test = GetParam();
  for (std::size_t i = 0; i < test.cases.size(); ++i) {
    SCOPED_TRACE(describe(test, i, DType::kF64));
    const OpCase& c = test.cases[i];
    if (is_cast_to_steps(c)) continue;  // whole numbers have no slope, and codes are not summed
    const Program program = as_float64(build_loss(test, c));
    const Tensors leaves = leaf_values(program, c);
    const Tensors direction = random_direction(leaves, c);
    const Tensors gradients = reference_values(differentiated(program), leaves);
    double slope = 0, scale = 0;
    for (const auto& [name, along] : direction) {
      const std::vector<double> d = to_doubles(along);
      const std::vector<double> g = to_doubles(gradients.at(gradient_name(name)));
      ASSERT_EQ(g.size(), d.size()) << name;
      for (std::size_t k = 0; k < g.size(); ++k) {
        slope += g[k] * d[k];
        scale += std::abs(g[k] * d[k]);
      }
    }
    constexpr double kStep = 3e-6;
    const double above = loss_at(program, leaves, direction, kStep);
    const double below = loss_at(program, leaves, direction, -kStep);
    if (!std::isfinite(above)) continue;  // a maximum over nothing
    const double difference = (above - below) / (2 * kStep);
    EXPECT_NEAR(slope, difference, 1e-6 * scale);
  }
}

TEST_P(CompositeTest, ItIsItsDecomposition) {
  const OpTest& test = GetParam();
  for (std::size_t i = 0; i < test.cases.size(); ++i) {
    SCOPED_TRACE(describe(test, i, DType::kF64));
    const Program program = build_program(test, test.cases[i], {});
    const Tensors leaves = leaf_values(program, test.cases[i]);
    const Tensors whole = reference_values(program, leaves);
    const Tensors parts = reference_values(decompose(program, always), leaves);
    for (const auto& [name, tensor] : whole) {
      const std::vector<double> expected = to_doubles(tensor);
      EXPECT_LE(max_difference(to_doubles(parts.at(name)), expected),
                1e-12 * (max_abs(expected) + 1e-6))
          << name;
    }
  }
}

TEST_P(DifferentiableCompositeTest, ItsGradientIsThatOfItsDecomposition) {
  const OpTest& test = GetParam();
  for (std::size_t i = 0; i < test.cases.size(); ++i) {
    SCOPED_TRACE(describe(test, i, DType::kF64));
    const OpCase& c = test.cases[i];
    const Program program = build_loss(test, c);
    const Tensors leaves = leaf_values(program, c);
    const Tensors whole = reference_values(differentiated(program), leaves);
    const Tensors parts = reference_values(differentiated(decompose(program, always)), leaves);
    for (const auto& [name, along] : random_direction(leaves, c)) {
      const std::vector<double> expected = to_doubles(whole.at(gradient_name(name)));
      EXPECT_LE(max_difference(to_doubles(parts.at(gradient_name(name))), expected),
                1e-11 * (max_abs(expected) + 1e-6))
          << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, OpGradientTest, ::testing::ValuesIn(records(has_gradient)),
                         name_of_record);
INSTANTIATE_TEST_SUITE_P(All, CompositeTest, ::testing::ValuesIn(records(is_composite)),
                         name_of_record);
INSTANTIATE_TEST_SUITE_P(All, DifferentiableCompositeTest,
                         ::testing::ValuesIn(records([](const OpTest& test) {
                           return has_gradient(test) && is_composite(test);
                         })),
                         name_of_record);

// By intent not the slope of what is computed: the rows of a padding stay as they are.
TEST(OpGradientSupportTest, TheRowOfThePaddingHasNoGradient) {
  ops::register_all();
  Builder b("padded");
  const Val table = b.parameter("w", {DType::kF64, {3, 2}});
  const Val rows =
      b.call1("gather", {table, b.input("i", {DType::kI64, {4}})}, {{"padding", std::int64_t{1}}});
  b.output("loss", ops::sum(rows, {0, 1}));
  Tensors leaves{{"w", HostTensor::zeros(DType::kF64, {3, 2})},
                 {"i", HostTensor::zeros(DType::kI64, {4})}};
  const auto ids = leaves.at("i").as<std::int64_t>();
  for (std::size_t i = 0; i < 4; ++i) ids[i] = 1 + static_cast<std::int64_t>(i % 2);
  const Tensors found = reference_values(autograd(b.finish(), {.loss = "loss"}), leaves);
  EXPECT_EQ(to_doubles(found.at(gradient_name("w"))), (std::vector<double>{0, 0, 0, 0, 2, 2}));
}

TEST(OpGradientSupportTest, WhatIsKeptForBackwardCannotBeDifferentiated) {
  ops::register_all();
  Builder b("statistics");
  const Val x = b.input("x", {DType::kF64, {3, 4}});
  const auto normed = b.call(find_op("rms_norm"), {x, b.input("w", {DType::kF64, {4}})});
  const auto entropy = b.call(find_op("cross_entropy"), {x, b.input("t", {DType::kI64, {3}})});
  b.output("of rstd", ops::sum(normed[1], {0}));
  b.output("of lse", ops::sum(entropy[1], {0}));
  const Program program = b.finish();
  for (const char* loss : {"of rstd", "of lse"}) {
    EXPECT_THROW(autograd(program, {.loss = loss, .inputs = true}), Error) << loss;
  }
}

TEST(OpGradientSupportTest, EveryRecordWithAGradientRuleIsDifferentiated) {
  ops::register_all();
  for (const OpTest& test : op_tests()) {
    EXPECT_TRUE(!find_op(test.op).gradient || has_gradient(test)) << test.op;
  }
}

}  // namespace
}  // namespace tracestep::testing
