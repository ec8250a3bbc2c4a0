// Rates: microseconds per unit of each quantity of a kernel's work, found from measured launches.
#pragma once

#include <span>

#include "lab/predict/kernel_work.h"

namespace tracestep {

// The time per unit of each quantity; at least 0, so that more work never takes less time.
struct Rates {
  Efforts us_per_unit{};

  double us(const Efforts& amounts) const;
};

struct MeasuredWork {
  Efforts amounts{};
  double us = 0;
};

// Fits the rates with the least sum of squared relative errors, launches far from the others
// counting less (Huber's weights). `usual`: rates to assume of quantities that the launches say
// little of; each weighs as much as `prior` launches, and 0 means not known. Source: Lawson and
// Hanson, "Solving Least Squares Problems", 1974, chapter 23 (the problem), solved one rate after
// the other.
Rates fit_rates(std::span<const MeasuredWork> launches, const Rates& usual = {},
                double prior = 0.5);

// Multiplies all rates by one factor, so that they predict the launches' total time: for kernels
// that are faster or slower as a whole.
Rates at_pace_of(std::span<const MeasuredWork> launches, Rates rates);

}  // namespace tracestep
