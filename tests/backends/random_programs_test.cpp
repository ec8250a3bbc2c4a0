// Two hundred random programs through everything that must hold for any program; ten thousand more
// are a battery of tools/soak.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cpu/cpu_device.h"
#include "backends/random_checks.h"
#include "ir/print.h"
#include "ops/functions.h"
#include "support/faulting_device.h"
#include "support/shrink.h"

namespace tracestep::testing {
namespace {

void expect_laws(RandomChecks& checks, std::uint64_t programs) {
  for (std::uint64_t seed = 1; seed <= programs; ++seed) {
    const RandomCase random = random_case(seed);
    const std::string fault = checks.fault_in(random);
    ASSERT_EQ(fault, "") << "seed " << seed << ", " << random.wishes() << "\n"
                         << print(random.program);
  }
}

TEST(RandomProgramsTest, EveryLawHolds) {
  RandomChecks checks;
  expect_laws(checks, 40);
}

TEST(MoreRandomProgramsTest, EveryLawHoldsAndEveryOpOccurs) {
  RandomChecks checks;
  expect_laws(checks, 340);
  const RandomShares& shares = checks.shares();
  std::cout << shares.text() << "\n";
  const auto device = make_cpu_device({.threads = 1});
  for (const OpDef* op : all_ops()) {
    if (!op->is_view() && !device->has_kernel(*op) && !op->decompose) continue;
    // Tensors of several parts come from blocks of weights, which random programs do not have.
    if (!op->has_launches() && op->is_variadic()) continue;
    // These ops need a group: tests/session/ranks_test.cpp.
    if (op->find_attr("ranks") != nullptr) continue;
    // Updates alone have it, without a gradient: tests/exec/muon_test.cpp.
    if (op->name == "newton_schulz") continue;
    const auto found = shares.with_op.find(op->name);
    const std::int64_t with = found == shares.with_op.end() ? 0 : found->second;
    EXPECT_GE(100 * with, shares.programs) << op->name;
  }
  EXPECT_GT(2 * shares.with_views, shares.programs);
  EXPECT_GT(2 * shares.with_donation, shares.programs);
  EXPECT_GT(4 * shares.with_updates, shares.programs);
  EXPECT_GT(3 * shares.with_recomputation, shares.programs);
  EXPECT_GT(100 * shares.compared_nodes, 99 * shares.nodes_not_finite);
}

TEST(RandomProgramsTest, AProgramIsAFunctionOfItsSeed) {
  const RandomCase a = random_case(7), b = random_case(7), c = random_case(8);
  EXPECT_EQ(print(a.program), print(b.program));
  EXPECT_EQ(a.wishes(), b.wishes());
  EXPECT_NE(print(a.program), print(c.program));
}

// A kernel whose result is not what it should be is found, in almost every program.
TEST(RandomProgramsTest, AWrongResultIsFound) {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    RandomChecks checks([](const RandomChecks::Wish& wish) -> std::unique_ptr<Device> {
      return std::make_unique<FaultingDevice>(
          make_cpu_device({.threads = wish.threads, .guarded = wish.guarded}),
          FaultKind::kNotFiniteResult, wish.threads == 3 ? 3 : 1 << 20);
    });
    found += checks.fault_in(random_case(seed)).empty() ? 0 : 1;
  }
  EXPECT_GE(found, 15);
}

// Shrinking a program leaves the node that shows the fault.
TEST(ShrinkTest, TheSmallestProgramThatStillFailsIsLeft) {
  RandomCase random = random_case(20);
  const auto has_product = [](const RandomCase& r) {
    return std::ranges::any_of(r.program.nodes,
                               [](const Node& n) { return n.op->name == "matmul"; });
  };
  for (std::uint64_t seed = 21; !has_product(random); ++seed) random = random_case(seed);
  ASSERT_GT(random.program.nodes.size(), 10u);
  const RandomCase small = shrunk(random, has_product);
  ASSERT_EQ(small.program.nodes.size(), 1u) << print(small.program);
  EXPECT_EQ(small.program.leaves.size(), 2u);
}

}  // namespace
}  // namespace tracestep::testing
