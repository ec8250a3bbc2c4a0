// When to stop timing: after a fixed number of steps, or as soon as the median is known precisely
// enough, with limits on steps and time.
#pragma once

#include <span>
#include <string>

namespace tracestep {

struct SamplingRule {
  int steps = 10;  // exact number; the least with a noise criterion
  // Sampling ends when half the 95 % interval of the median, in percent of the median, is at most
  // this; 0: no noise criterion.
  double max_noise_percent = 0;
  int max_steps = 1000;       // the limits with a noise criterion
  double max_seconds = 60.0;  // of timed steps
};

// Half the 95 % interval of the median in percent of the median; NaN with fewer than six samples,
// which have no such interval.
double noise_percent_of(std::span<const double> samples);

// Empty while sampling goes on. Otherwise why it ends: "steps" (the requested number is reached),
// "noise" (the criterion is met), "max-steps" or "max-seconds" (a limit was reached first).
std::string end_of_sampling(const SamplingRule& rule, std::span<const double> samples_ms);

}  // namespace tracestep
