// The regions of a program that `fuse` turns into single nodes, and the node that each becomes.
#pragma once

#include <vector>

#include "analysis/readers.h"
#include "ir/program.h"

namespace tracestep {

using Members = std::vector<NodeId>;  // Nodes that compute, in program order.

// The node that will replace a region: its body, operands and results.
struct FusedNode {
  Program body{};
  // The program's values that it reads, in the order of the body's leaves.
  std::vector<ValueId> operands;
  // The program's values that it computes, in the order of the body's outputs.
  std::vector<ValueId> results;
};

class Regions {
 public:
  // Begins with a region for each node that may be fused; `with_updates`: also of the optimizer.
  explicit Regions(const Program& program, bool with_updates = false);

  // Joins neighbours in the dataflow, then regions that read the same operand or views of it, as
  // long as the result can be computed in one walk (analysis/fused_body.h) and no path between its
  // nodes leaves it.
  void grow();

  const std::vector<Members>& all() const { return regions_; }
  // Returns the region of a node; -1: the node is not fused.
  int region_of(NodeId id) const { return region_of_[static_cast<std::size_t>(id)]; }
  const Readers& readers() const { return readers_; }
  // Returns nodes that must run before `id` although it reads none of their results.
  const std::vector<NodeId>& before(NodeId id) const {
    return before_[static_cast<std::size_t>(id)];
  }

  // Returns the fused node of a region. `wanted`: its results, which are values of its nodes or
  // views of them.
  FusedNode node_of(const Members& region, const std::vector<ValueId>& wanted) const;
  // Returns the region's values that are read outside it.
  std::vector<ValueId> results_of(const Members& region) const;

 private:
  NodeId computed_by(ValueId id) const;
  bool may_join(const Node& node) const;
  bool may_join_updates(const Node& node) const;
  void find_successors();
  bool try_join(int a, int b);
  bool are_of_one_module(int a, int b) const;
  void count_span(const Members& region, int change);
  NodeId point_of_no_return(NodeId id) const;
  bool leaves_and_returns(int a, int b) const;
  void join_siblings();

  const Program& program_;
  const bool with_updates_;
  Readers readers_;
  std::vector<std::vector<NodeId>> successors_;
  std::vector<std::vector<NodeId>> before_;  // For an update, the readers of the old value.
  std::vector<int> region_of_;               // The region of each node; -1: it is not fused.
  std::vector<Members> regions_;             // A region without nodes was joined to another one.
  // For each node, the number of regions that begin at or before it and end after it.
  std::vector<int> spans_;
};

}  // namespace tracestep
