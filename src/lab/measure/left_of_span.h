// What the times of kernels, which are of recorded steps, leave of the span of plain steps. Only a
// part of it lies between kernels.
#pragma once

#include "lab/report/quantity.h"

namespace tracestep {

// All in ms.
struct LeftOfSpan {
  Quantity span, recorded_span;  // of plain steps, and of recorded ones
  Quantity recorded_gaps;        // between kernels of recorded steps
  Quantity held_up;              // what single launches of those lost; in no kernel's time

  // "3.312 ms between kernels of recorded steps, 14.24 ms for which single launches were held up
  // there, 25.16 ms by which plain steps came out longer"
  Text parts() const;
};

}  // namespace tracestep
