// Composites chosen one by one: what a program keeps whole, and that it computes the same.
#include "run/granularity.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "ops/functions.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

RunSpec step_with(Granularity ops) {
  ops::register_all();
  return {
      .model = {.name = "custom", .vocab = 16, .d_model = 8, .d_ff = 12, .layers = 1, .heads = 2},
      .shape = {.batch = 1, .context = 4},
      .ops = ops};
}

std::set<Composite> composites_in(const Program& program) {
  std::set<Composite> out;
  for (const Node& node : program.nodes) out.insert(node.op->composite);
  out.erase(Composite::kOther);
  return out;
}

TEST(GranularityTest, AStepKeepsExactlyTheCompositesThatWereChosen) {
  EXPECT_TRUE(composites_in(step_program(step_with(Granularity::kPrimitive))).empty());
  for (Composite composite : kNamedComposites) {
    const Granularity ops = Granularity::kPrimitive.with(composite);
    EXPECT_EQ(composites_in(step_program(step_with(ops))), std::set{composite}) << name_of(ops);
  }
  EXPECT_EQ(composites_in(step_program(step_with(Granularity::kFused))).size(),
            std::size(kNamedComposites));
}

TEST(GranularityTest, AllOfThemOneByOneAreTheFusedProgram) {
  Granularity ops = Granularity::kPrimitive;
  std::size_t nodes = step_program(step_with(ops)).nodes.size();
  for (Composite composite : kNamedComposites) {
    EXPECT_FALSE(ops.keeps(Composite::kOther));
    ops = ops.with(composite);
    const std::size_t fewer = step_program(step_with(ops)).nodes.size();
    EXPECT_LT(fewer, nodes) << name_of(ops);
    nodes = fewer;
  }
  EXPECT_EQ(ops, Granularity::kFused);
  EXPECT_TRUE(ops.keeps(Composite::kOther));
}

// Frameworks have a product with its bias as a primitive op: precision decides, not granularity.
TEST(GranularityTest, AProductKeepsItsBiasWhereAutocastCastsBoth) {
  for (Granularity ops : kAllGranularities) {
    RunSpec run = step_with(ops);
    run.model.ffn_bias = true;
    const auto biased = [&] {
      return std::ranges::count_if(step_program(run).nodes, [](const Node& node) {
        return node.op->product && node.op->decompose;
      });
    };
    EXPECT_EQ(biased(), 0) << name_of(ops);
    run.precision = parse_precision("test", "bf16");
    EXPECT_EQ(biased(), 3) << name_of(ops);
  }
}

TEST(GranularityTest, EveryOpWithAGradientAndADecompositionBelongsToAComposite) {
  ops::register_all();
  const std::set<std::string_view> of_modules = {"cumsum", "pow"};  // no model of ours has them
  for (const OpDef* op : all_ops()) {
    if (!op->gradient || !op->decompose || op->stays_whole || op->product) continue;
    if (of_modules.contains(op->name)) continue;
    EXPECT_NE(op->composite, Composite::kOther) << op->name;
  }
}

}  // namespace
}  // namespace tracestep
