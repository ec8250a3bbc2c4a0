// A group of some of a run's ranks: those whose numbers differ by a multiple of `stride`. The
// default stride makes groups of neighbours.
#pragma once

#include <compare>
#include <cstdint>

namespace tracestep {

struct RankGroup {
  std::int64_t ranks = 1;
  std::int64_t stride = 1;

  // Returns the index of a rank of the run in its group, from 0.
  constexpr std::int64_t index_of(std::int64_t rank) const { return rank / stride % ranks; }
  // Returns the rank of the run that is the first in the group of `rank`.
  constexpr std::int64_t first_of(std::int64_t rank) const {
    return rank - index_of(rank) * stride;
  }

  friend auto operator<=>(const RankGroup&, const RankGroup&) = default;
};

}  // namespace tracestep
