// When to stop timing: after a fixed number of steps, or as soon as the median is known precisely
// enough, with limits on steps and time.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "spec/protocol.h"

namespace tracestep {

// The least number of samples of a visit: three visits then have the six that a 95 % interval of a
// median needs.
inline constexpr int kVisitSamples = 2;

// Returns half the 95 % interval of the median in percent of the median; NaN with fewer than six
// samples, which have no such interval.
double noise_percent_of(std::span<const double> samples);

// Words of end_of_sampling(), which says why sampling ends: "steps" (the number is reached),
// "noise" (the criterion is met), or one of these (a limit was reached first); empty: it goes on.
inline constexpr std::string_view kMaxSteps = "max-steps", kMaxSeconds = "max-seconds";
std::string end_of_sampling(const Protocol& protocol, std::span<const double> samples_ms);

}  // namespace tracestep
