// Tables look parts of the model up by their scopes: a name that no node has would leave one empty.
#include "nn/scopes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "analysis/origins.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

std::set<std::string> components_of(Granularity ops, Mode mode) {
  const Program program = step_program(
      {.model = {.name = "own", .vocab = 11, .d_model = 12, .d_ff = 20, .layers = 2, .heads = 3},
       .shape = {.batch = 1, .context = 4},
       .mode = mode,
       .ops = ops});
  std::set<std::string> out;
  for (const Node& node : program.nodes) {
    for (const Origin& origin : node.origins) out.insert(component_of(origin.path));
  }
  return out;
}

TEST(ScopesTest, EveryPartThatTablesLookForIsInAProgram) {
  using namespace scope;
  const std::string looked_for[] = {std::string(kEmbedding),      std::string(kHead),
                                    std::string(kFirstNorm),      path({kAttention, kScores}),
                                    path({kAttention, kSoftmax}), path({kAttention, kValues}),
                                    path({kFeedForward, kGate}),  path({kFeedForward, kSwiglu})};
  for (Granularity ops : {Granularity::kFused, Granularity::kPrimitive}) {
    for (Mode mode : {Mode::kInference, Mode::kStep}) {
      const std::set<std::string> components = components_of(ops, mode);
      for (const std::string& name : looked_for) {
        EXPECT_THAT(components, ::testing::Contains(name)) << name_of(ops) << " " << name_of(mode);
      }
    }
  }
}

TEST(ScopesTest, PathsAreThoseOfTheNodes) {
  EXPECT_EQ(scope::path({scope::layer(3), scope::kAttention, scope::kSoftmax}),
            "layers.3.attn.softmax");
  EXPECT_EQ(component_of(scope::path({scope::layer(3), scope::kFeedForward})), "ffn");
}

}  // namespace
}  // namespace tracestep
