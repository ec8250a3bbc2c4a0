// The regions of a program that `fuse` turns into single nodes, and the node that each becomes.
#pragma once

#include <vector>

#include "analysis/readers.h"
#include "ir/program.h"

namespace tracestep {

using Members = std::vector<NodeId>;  // computing nodes, in program order

// A region as the node that will stand for it.
struct FusedNode {
  Program body{};
  std::vector<ValueId> operands;  // of the program, in the order of the body's leaves
  std::vector<ValueId> results;   // of the program, in the order of the body's outputs
};

class Regions {
 public:
  // Every node that may be fused is a region of its own.
  explicit Regions(const Program& program);

  // Joins neighbours in the dataflow, then regions that read the same operand or views of it, while
  // the result is one walk (analysis/fused_body.h) and no path between its nodes leaves it.
  void grow();

  const std::vector<Members>& all() const { return regions_; }
  // -1: the node stays as it is.
  int region_of(NodeId id) const { return region_of_[static_cast<std::size_t>(id)]; }
  const Readers& readers() const { return readers_; }
  // Nodes that must run before `id` although it reads none of their results.
  const std::vector<NodeId>& before(NodeId id) const {
    return before_[static_cast<std::size_t>(id)];
  }

  // The fused node of the region with the results `wanted`: values of its nodes, or views of them.
  FusedNode node_of(const Members& region, const std::vector<ValueId>& wanted) const;
  // The region's values that are read outside it.
  std::vector<ValueId> results_of(const Members& region) const;

 private:
  NodeId computed_by(ValueId id) const;
  bool may_join(const Node& node) const;
  void find_successors();
  bool try_join(int a, int b);
  bool are_of_one_module(int a, int b) const;
  void count_span(const Members& region, int change);
  NodeId point_of_no_return(NodeId id) const;
  bool leaves_and_returns(int a, int b) const;
  void join_siblings();

  const Program& program_;
  Readers readers_;
  std::vector<std::vector<NodeId>> successors_;
  std::vector<std::vector<NodeId>> before_;  // of an update: who reads the old value
  std::vector<int> region_of_;               // by node; -1: it stays as it is
  std::vector<Members> regions_;             // without nodes: joined to another
  std::vector<int> spans_;  // by node: regions that begin there or before, and end after it
};

}  // namespace tracestep
