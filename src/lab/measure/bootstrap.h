// How sure a ratio of two medians is, by resampling.
#pragma once

#include <cstdint>
#include <span>

#include "lab/measure/statistics.h"

namespace tracestep {

// median(b) / median(a) of resampled lists, `resamples` times: the middle `confidence` of them.
// The same lists, seed and count give the same interval on every machine. NaN, with coverage 0,
// when a list has fewer than six samples (resampling a handful shows too little of what could have
// been) or a median is not positive. Source: Efron, "Bootstrap methods: another look at the
// jackknife", 1979 (percentile method).
Interval ratio_interval(std::span<const double> a, std::span<const double> b,
                        double confidence = 0.95, std::uint64_t seed = 0, int resamples = 4000);

}  // namespace tracestep
