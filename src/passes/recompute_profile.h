// Estimates the live bytes of a step if some of its forward nodes are recomputed. It is fast enough
// for a search over thousands of sets, and not exact, because later passes still change the step.
#pragma once

#include <cstdint>
#include <vector>

#include "passes/recompute_choices.h"

namespace tracestep {

class RecomputeProfile {
 public:
  // Keeps references to both arguments, which must outlive this object.
  RecomputeProfile(const Program& program, const RecomputeChoices& choices);

  struct Profile {
    double us = 0.0;  // The modelled time of recomputed nodes.
    // For each node, the most live bytes while it runs, including what is recomputed for it.
    std::vector<std::int64_t> live_bytes = {};
    std::int64_t peak_bytes() const;
  };
  // Returns the profile of a choice, with recomputed nodes where recompute_nodes() would place
  // them. Leaves are not counted, and neither are updates, which reuse the bytes of leaves.
  Profile of(const std::vector<bool>& again) const;

  // Removes nodes from `again` one by one, as long as live bytes stay within `limit_bytes`: each
  // time the one that saves the most time for the share that it takes of the remaining bytes.
  std::vector<bool> lightened(std::vector<bool> again, std::int64_t limit_bytes) const;

 private:
  class Walk;

  std::vector<std::vector<NodeId>> by_place(const std::vector<bool>& again) const;

  const Program& program_;
  const RecomputeChoices& choices_;
  // For each node, the base values that it reads and makes, without leaves.
  std::vector<std::vector<ValueId>> reads_, makes_;
  std::vector<std::int64_t> bytes_;  // Bytes by base value.
  std::vector<bool> stays_;  // For each base value, whether it is alive at the end of the step.
};

}  // namespace tracestep
