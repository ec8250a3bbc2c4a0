#include "lab/profile/intervals.h"

#include <algorithm>

namespace tracestep {

Intervals united(Intervals intervals) {
  std::ranges::sort(intervals, {}, &TimeSpan::start_ns);
  Intervals out;
  for (const TimeSpan& i : intervals) {
    if (out.empty() || out.back().end_ns < i.start_ns) {
      out.push_back(i);
    } else {
      out.back().end_ns = std::max(out.back().end_ns, i.end_ns);
    }
  }
  return out;
}

std::int64_t length_ns(const Intervals& intervals) {
  std::int64_t out = 0;
  for (const TimeSpan& i : intervals) out += i.end_ns - i.start_ns;
  return out;
}

std::int64_t common_ns(const Intervals& a, const Intervals& b) {
  std::int64_t out = 0;
  for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end();) {
    const std::int64_t from = std::max(i->start_ns, j->start_ns);
    const std::int64_t to = std::min(i->end_ns, j->end_ns);
    out += std::max<std::int64_t>(0, to - from);
    if (i->end_ns < j->end_ns) {
      ++i;
    } else {
      ++j;
    }
  }
  return out;
}

}  // namespace tracestep
