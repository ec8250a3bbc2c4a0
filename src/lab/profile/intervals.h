// Sets of moments, stored as sorted intervals that do not touch, for example the moments at which a
// kernel of a group runs.
#pragma once

#include <cstdint>
#include <vector>

namespace tracestep {

struct TimeSpan {
  std::int64_t start_ns = 0, end_ns = 0;
};
using Intervals = std::vector<TimeSpan>;

// Returns the union of intervals, which may overlap and be in any order.
Intervals united(Intervals intervals);
// Returns the total length of intervals that united() made.
std::int64_t length_ns(const Intervals& intervals);
// Returns the length of the intersection of two results of united().
std::int64_t common_ns(const Intervals& a, const Intervals& b);

}  // namespace tracestep
