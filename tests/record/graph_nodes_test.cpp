#include "record/graph_nodes.h"

#include <gtest/gtest.h>

namespace tracestep {
namespace {

TEST(GraphNodesTest, CopiesBelongToTheNodeThatWasAtHandWhenTheirOriginalWasCreated) {
  GraphNodes nodes;
  nodes.created(1);
  nodes.set_node(7);
  nodes.created(2);
  nodes.created(3);
  nodes.set_node(8);
  nodes.created(4);
  nodes.set_node(kWholeStep);
  nodes.cloned(2, 12);
  nodes.cloned(3, 13);
  nodes.cloned(4, 14);
  nodes.cloned(14, 24);
  nodes.cloned(99, 19);
  EXPECT_EQ(nodes.node_of(1), kWholeStep);
  EXPECT_EQ(nodes.node_of(12), 7);
  EXPECT_EQ(nodes.node_of(13), 7);
  EXPECT_EQ(nodes.node_of(24), 8);
  EXPECT_EQ(nodes.node_of(19), kWholeStep);
  EXPECT_EQ(nodes.node_of(5), kWholeStep);
}

// A graph that is instantiated may create its nodes before it says what they are copies of.
TEST(GraphNodesTest, ACopyThatIsCreatedFirstBelongsToItsOriginalsNode) {
  GraphNodes nodes;
  nodes.set_node(7);
  nodes.created(1);
  nodes.set_node(kWholeStep);
  nodes.created(11);
  nodes.cloned(1, 11);
  EXPECT_EQ(nodes.node_of(11), 7);
}

}  // namespace
}  // namespace tracestep
