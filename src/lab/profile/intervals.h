// Sets of moments, as intervals that lie apart and in order: when some kernel of a group runs.
#pragma once

#include <cstdint>
#include <vector>

namespace tracestep {

struct TimeSpan {
  std::int64_t start_ns = 0, end_ns = 0;
};
using Intervals = std::vector<TimeSpan>;

// The moments of any of these, which may overlap and stand in any order.
Intervals united(Intervals intervals);
// The length of united intervals.
std::int64_t length_ns(const Intervals& intervals);
// The length of what both hold; united intervals.
std::int64_t common_ns(const Intervals& a, const Intervals& b);

}  // namespace tracestep
