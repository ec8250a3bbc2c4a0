// Finds what may be computed again in backward, and the sets of it that are best for some price of
// a byte.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/program.h"
#include "planning/device_traits.h"
#include "run/recomputation.h"

namespace tracestep {

// The forward nodes of a program as a problem of choice: which of them run again, so that their
// results need not be kept. A node that runs again needs its operands, kept or computed again too.
class RecomputeChoices {
 public:
  // `fuses`: the device fuses what runs again (modelled_us_by_node()).
  RecomputeChoices(const Program& program, DeviceKind kind, bool fuses = false);

  // Nodes that run again, by node; their modelled time; the bytes kept, each times its weight.
  struct Choice {
    std::vector<bool> again;
    double us = 0.0;
    double kept_bytes = 0.0;
  };
  // Every choice that minimizes us + price · kept_bytes for some price, cheapest first: from
  // nothing computed again to everything that saves a byte. What blocks read from each other is
  // always kept.
  const std::vector<Choice>& frontier();

  // The choice for a price at which all that is worth little time for its bytes runs again.
  Choice thinnest() const;

  // A lower bound on the time of every choice that holds at most so many bytes; infinite if no
  // choice holds so few. Counts leaves, gradients and what is kept, at two moments: when backward
  // begins, and when in backward they would be the most if everything were kept.
  double least_us(std::int64_t budget_bytes);

  // Nodes that a choice of parts computes again: those whose results only the part itself reads.
  std::vector<bool> inside(const Recomputation& parts) const;

  // Nodes by which a block hands on its result, and the casts of what they add up, of every block
  // but the last of each `group` neighbours: instead of the result, what is added may be kept. Also
  // those that look up rows for blocks.
  std::vector<NodeId> handing_on(int group) const;

  // Nodes that may run again: those of forward, without views and constants.
  const std::vector<NodeId>& nodes() const { return nodes_; }
  // The nodes that make what is saved for backward.
  const std::vector<NodeId>& makers() const { return makers_; }
  // The block of a node, 0, 1, …; -1: none.
  int block_of(NodeId node) const { return blocks_[static_cast<std::size_t>(node)]; }
  int block_count() const { return block_count_; }
  double us_of(NodeId node) const { return us_[static_cast<std::size_t>(node)]; }

 private:
  using Weights = std::vector<double>;  // by base value: bytes, or 0 where keeping it is free

  // Bytes that are there at a moment whatever is chosen, and those that are there if they are kept.
  struct Moment {
    std::int64_t fixed_bytes = 0;
    Weights bytes = {};
  };

  bool may_run_again(NodeId node) const;
  void find_kept();
  Moment beginning_of_backward() const;
  Moment fullest_moment() const;
  std::vector<NodeId> update_nodes() const;
  Choice cheapest(double price, const Weights& weights) const;
  double kept_bytes(const std::vector<bool>& again, const Weights& weights) const;
  std::vector<Choice> hull(const Weights& weights) const;

  const Program& program_;
  std::vector<double> us_;      // by node
  std::vector<bool> constant_;  // by node
  std::vector<int> blocks_;     // by node
  int block_count_ = 0;
  std::vector<NodeId> nodes_, makers_;
  std::vector<bool> saved_;                   // by base value
  std::vector<std::vector<NodeId>> readers_;  // by base value: forward nodes
  Weights bytes_;                             // without what blocks read from each other

  // A lower bound at one moment of the step; made when it is asked for, as it needs many cuts.
  struct Bound {
    std::int64_t fixed_bytes = 0;
    std::vector<Choice> hull;
  };
  std::vector<Choice> frontier_;
  std::vector<Bound> bounds_;
};

// Leaves in the device's memory, and what the nodes of blocks have made that is read in backward: a
// lower bound on the peak of a program with backward, whatever the passes after `recompute` do.
std::int64_t held_when_backward_begins(const Program& program);

}  // namespace tracestep
