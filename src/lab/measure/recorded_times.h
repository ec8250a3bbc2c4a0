// Corrects the times of recorded steps for held-up launches, and compares them with plain steps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lab/report/quantity.h"

namespace tracestep {

// Launches that other work held up. Few steps are recorded, so one launch that lost its core for a
// time slice would move every share and order; the same launch of the other steps tells.
struct RecordedLaunch {
  std::int32_t step = 0, node = 0, name = 0;  // of the recorded steps; the kernel's name
  double ms = 0;
};

// The time that counts for each launch: its own, or, where that is over 1.5 times the median of the
// same launch in all recorded steps, that median. With fewer than three steps all are their own.
// `launches`: those of each step in the order in which they ran.
std::vector<double> undisturbed_ms(std::span<const RecordedLaunch> launches);

// Splits the part of the span of plain steps that the times of kernels, taken in recorded steps, do
// not fill. Only some of it lies between kernels. All in ms.
struct LeftOfSpan {
  Quantity span, recorded_span;  // of plain steps, and of recorded ones
  Quantity recorded_gaps;        // between kernels of recorded steps
  Quantity held_up;              // time that single launches of those lost; in no kernel's time

  // "3.312 ms between kernels of recorded steps, 14.24 ms for which single launches were held up
  // there, 25.16 ms by which plain steps came out longer"
  Text parts() const;
};

}  // namespace tracestep
