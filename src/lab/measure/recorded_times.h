// Corrects the times of recorded steps for held-up launches, and compares them with plain steps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lab/report/quantity.h"

namespace tracestep {

// A launch in the recorded steps. Other work on the machine may delay a launch by a time slice, and
// since few steps are recorded, one such delay would change shares and order. The same launch in
// the other recorded steps shows it.
struct RecordedLaunch {
  // The recorded step, the node, and the index of the kernel's name.
  std::int32_t step = 0, node = 0, name = 0;
  double ms = 0;
};

// Returns the time that counts for each launch: its own, or, where that is over 1.5 times the
// median of the same launch in all recorded steps, that median. With fewer than three steps all are
// their own. `launches`: those of each step in the order in which they ran.
std::vector<double> undisturbed_ms(std::span<const RecordedLaunch> launches);

// Divides the part of a plain (unrecorded) step's time span that kernel times, which come from
// recorded steps, do not fill. It has three parts: gaps between kernels, delays of single launches,
// and the time by which plain steps took longer than recorded ones. All in ms.
struct LeftOfSpan {
  Quantity span, recorded_span;  // The time spans of plain and of recorded steps.
  Quantity recorded_gaps;        // The time between kernels in recorded steps.
  // Delays of single launches in recorded steps, which count in no kernel's time.
  Quantity held_up;

  // Says the three parts in words: "3.312 ms between kernels of recorded steps, 14.24 ms for which
  // single launches were held up there, 25.16 ms by which plain steps came out longer"
  Text parts() const;
};

}  // namespace tracestep
