// Launches that other work held up. Few steps are recorded, so one launch that lost its core for a
// time slice would move every share and order; the same launch of the other steps tells.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tracestep {

struct RecordedLaunch {
  std::int32_t step = 0, node = 0, name = 0;  // of the recorded steps; the kernel's name
  double ms = 0;
};

// The time that counts for each launch: its own, or, where that is over 1.5 times the median of the
// same launch in all recorded steps, that median. With fewer than three steps all are their own.
// `launches`: those of each step in the order in which they ran.
std::vector<double> undisturbed_ms(std::span<const RecordedLaunch> launches);

}  // namespace tracestep
