// Shares of recorded kernels' times, and how far they can be trusted.
#pragma once

#include "lab/report/quantity.h"

namespace tracestep {

// Times of recorded steps come without their noise; differences within this share are not told
// apart.
inline constexpr double kRecordedNoise = 0.05;

inline Quantity noisy(const Quantity& q) {
  return plus_minus(q, kRecordedNoise * q);
}

// In percent.
inline Quantity share_of(const Quantity& part, const Quantity& all) {
  return 100.0 * part / all;
}

}  // namespace tracestep
