// Finds which nodes may be recomputed in backward, and the sets of them that are best for some
// price per kept byte.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/program.h"
#include "planning/device_traits.h"
#include "run/recomputation.h"

namespace tracestep {

// Finds choices of which forward nodes of a program are recomputed, so that their results need
// not be kept. A recomputed node needs its operands, which are kept or recomputed too.
class RecomputeChoices {
 public:
  // Prepares for a program; `fuses`: the device fuses recomputed nodes (modelled_us_by_node()).
  RecomputeChoices(const Program& program, DeviceKind kind, bool fuses = false);

  // A choice: which nodes are recomputed, their modelled time in microseconds, and the bytes
  // that are kept, each multiplied by its weight.
  struct Choice {
    std::vector<bool> again;
    double us = 0.0;
    double kept_bytes = 0.0;
  };
  // Returns every choice that minimises us + price · kept_bytes for some price, the fastest
  // first: from recomputing nothing to recomputing everything that saves a byte. What blocks
  // read from each other is always kept.
  const std::vector<Choice>& frontier();

  // Returns the choice at a high price: it recomputes all that takes little time for its bytes.
  Choice thinnest() const;

  // Returns a lower bound on the time of every choice that keeps at most this many bytes;
  // infinite if no choice keeps so few. It counts leaves, gradients and kept values at two
  // moments: when backward begins, and when it would have the most bytes if everything were kept.
  double least_us(std::int64_t budget_bytes);

  // Returns the nodes that recomputing whole parts would recompute: those whose results only the
  // part itself reads.
  std::vector<bool> inside(const Recomputation& parts) const;

  // Returns the nodes by which blocks pass on their results (sums and the casts of their terms),
  // but for the last block of each `group` neighbouring blocks. The terms may be kept instead of
  // a result. Includes nodes that look up rows for blocks.
  std::vector<NodeId> handing_on(int group) const;

  // Returns the nodes that may be recomputed: forward nodes without views and constants.
  const std::vector<NodeId>& nodes() const { return nodes_; }
  // Returns the nodes that make what is saved for backward.
  const std::vector<NodeId>& makers() const { return makers_; }
  // Returns the block of a node, 0, 1, …; -1: it is in none.
  int block_of(NodeId node) const { return blocks_[static_cast<std::size_t>(node)]; }
  int block_count() const { return block_count_; }
  double us_of(NodeId node) const { return us_[static_cast<std::size_t>(node)]; }

 private:
  // For each base value, the bytes of keeping it, or 0 if that is free.
  using Weights = std::vector<double>;

  // The bytes at a moment of the step: those with any choice, and of each value if it is kept.
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
  std::vector<double> us_;      // Microseconds by node.
  std::vector<bool> constant_;  // by node
  std::vector<int> blocks_;     // by node
  int block_count_ = 0;
  std::vector<NodeId> nodes_, makers_;
  std::vector<bool> saved_;  // For each base value, whether it is saved for backward.
  // For each base value, the forward nodes that read it.
  std::vector<std::vector<NodeId>> readers_;
  Weights bytes_;  // Without the values that blocks read from each other.

  // A lower bound at one moment of the step. It is computed when first needed, because it takes
  // many cuts.
  struct Bound {
    std::int64_t fixed_bytes = 0;
    std::vector<Choice> hull;
  };
  std::vector<Choice> frontier_;
  std::vector<Bound> bounds_;
};

// Returns a lower bound on the peak of a program with backward, whatever passes after `recompute`
// do: leaves in the device's memory, and results of blocks' nodes that backward reads.
std::int64_t held_when_backward_begins(const Program& program);

}  // namespace tracestep
