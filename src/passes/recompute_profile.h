// Live bytes of a step when some of its forward nodes run again: fast, for a search that compares
// thousands of sets of nodes, and not exact, as passes that follow still change the step.
#pragma once

#include <cstdint>
#include <vector>

#include "passes/recompute_choices.h"

namespace tracestep {

class RecomputeProfile {
 public:
  // Both must outlive it.
  RecomputeProfile(const Program& program, const RecomputeChoices& choices);

  struct Profile {
    double us = 0.0;                            // modelled time of what runs again
    std::vector<std::int64_t> live_bytes = {};  // by node: the most, with what runs again for it
    std::int64_t peak_bytes() const;
  };
  // The profile of a choice, with copies where recompute_nodes() would place them. Leaves are not
  // counted, and neither are updates, which take their place.
  Profile of(const std::vector<bool>& again) const;

  // Takes nodes out of `again` one after the other, as long as live bytes stay within `limit`: each
  // time the one that saves most time for its share of the room that is left where it needs it.
  std::vector<bool> lightened(std::vector<bool> again, std::int64_t limit_bytes) const;

 private:
  class Walk;

  std::vector<std::vector<NodeId>> by_place(const std::vector<bool>& again) const;

  const Program& program_;
  const RecomputeChoices& choices_;
  std::vector<std::vector<ValueId>> reads_, makes_;  // by node: base values, without leaves
  std::vector<std::int64_t> bytes_;                  // by base value
  std::vector<bool> stays_;                          // by base value: alive when the step ends
};

}  // namespace tracestep
