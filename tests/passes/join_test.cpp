// How the updates of several ranks are joined: in what order, and which apart.
#include "passes/update_passes.h"

#include <gtest/gtest.h>

#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ops/functions.h"
#include "passes/optimizer.h"
#include "passes/parallel_passes.h"

namespace tracestep {
namespace {

// Gradients of 16 bytes; that of d is there first.
constexpr const char* kBackward = R"(program "p" {
  parameter %a.w : f32[4]
  parameter %b.w : f32[4]
  parameter %c.w : f32[4]
  parameter %d.w : f32[4]
  %0 : f32[4] !gradient = affine(%d.w) {scale=2.0} @ d backward
  %1 : f32[4] !gradient = affine(%c.w) {scale=2.0} @ c backward
  %2 : f32[4] !gradient = affine(%b.w) {scale=2.0} @ b backward
  %3 : f32[4] !gradient = affine(%a.w) {scale=2.0} @ a backward
  output "grad.a.w" = %3
  output "grad.b.w" = %2
  output "grad.c.w" = %1
  output "grad.d.w" = %0
})";

class JoinTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  // The updates behind backward, as "op(weights)".
  static std::string updates_of(const Parallel& choice) {
    const int shards = choice.shards_optimizer() ? choice.replicas() : 1;
    const Program updated =
        optimizer(reduce(parse_program(kBackward), choice), {}, {.shards = shards});
    const Program program = join(
        updated, [](const OpDef&) { return true; }, choice);
    verify(program, VerifyStage::kBuilt);
    std::string out;
    for (const Node& node : program.nodes) {
      if (node.op->name == "affine" || node.op->name.find("reduce") != std::string::npos) continue;
      out += " " + node.op->name + "(" + paths_of(node) + ")";
    }
    return out;
  }

  static std::string paths_of(const Node& node) {
    std::string out;
    for (const Origin& origin : node.origins) out += origin.path;
    return out;
  }
};

// Rates of a share are made once, and updates that have the same are joined; of decay too.
TEST_F(JoinTest, GroupsOfRatesAndDecaysAreUpdatesOfTheirOwn) {
  const auto names = [](double decay) {
    const Program updated =
        optimizer(parse_program(kBackward), {.weight_decay = decay},
                  {.shares = {{"b.w", {.rate = 0.1}}, {"c.w", {.rate = 0.1, .decay = 0.0}}}});
    const Program program = join(updated, [](const OpDef&) { return true; }, {});
    verify(program, VerifyStage::kBuilt);
    std::string out;
    for (const Node& node : program.nodes) {
      const bool is_rate = node.op->name == "affine" && node.origin().path == "lr";
      if (is_rate) out += fmt::format(" {:g}", node.attrs.real("scale"));
      if (node.op->kernel_class == KernelClass::kOptimizer) out += " (" + paths_of(node) + ")";
    }
    return out;
  };
  EXPECT_EQ(names(0.0), " 0.1 0.1 (bc) (ad)");
  EXPECT_EQ(names(0.5), " 0.1 0.1 (b) (c) (ad)");
}

TEST_F(JoinTest, OneRankUpdatesAllTensorsAtOnce) {
  EXPECT_EQ(updates_of({}), " multi_adamw(abcd)");
}

TEST_F(JoinTest, GradientsThatCanBeInTheLastBatchAreUpdatedApart) {
  EXPECT_EQ(updates_of({.ranks = 2, .bucket_bytes = 16}), " multi_adamw(dc) multi_adamw(ba)");
  EXPECT_EQ(updates_of({.ranks = 2, .bucket_bytes = 20}), " adamw(d) multi_adamw(cba)");
  EXPECT_EQ(updates_of({.ranks = 2}), " multi_adamw(dcba)") << "all can be in the last batch";
  EXPECT_EQ(updates_of({.ranks = 2, .bucket_bytes = 16, .overlap = Overlap::kOff}),
            " multi_adamw(abcd)");
  EXPECT_EQ(updates_of({.ranks = 2, .bucket_bytes = 32, .overlap = Overlap::kUpdates}),
            " multi_adamw(dc) multi_adamw(ba)");
}

TEST_F(JoinTest, PartsAreUpdatedInBatchesAndGatheredBehindEach) {
  EXPECT_EQ(updates_of({.ranks = 2, .shard = 2, .bucket_bytes = 32}),
            " own_part(d) own_part(c) multi_adamw(dc) all_gather(d) all_gather(c)"
            " own_part(b) own_part(a) multi_adamw(ba) all_gather(b) all_gather(a)");
  EXPECT_EQ(updates_of({.ranks = 2, .shard = 1, .bucket_bytes = Parallel::kAllTensors}),
            " own_part(d) own_part(c) own_part(b) own_part(a) multi_adamw(dcba)"
            " all_gather(d) all_gather(c) all_gather(b) all_gather(a)");
}

}  // namespace
}  // namespace tracestep
