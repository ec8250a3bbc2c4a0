// When to stop timing: after a fixed number of steps, or as soon as the median is known well
// enough, with a cap on steps and on time.
#pragma once

#include <span>
#include <string>

namespace tracestep {

struct SamplingRule {
  int steps = 10;  // exactly so many, or at least so many with a noise criterion
  // Half the 95 % interval of the median, in percent of the median, at which sampling ends; 0:
  // none.
  double max_noise_percent = 0;
  int max_steps = 1000;       // the caps of sampling by noise
  double max_seconds = 60.0;  // of timed steps
};

// Half the 95 % interval of the median in percent of the median; NaN with fewer than six samples,
// which have no such interval.
double noise_percent_of(std::span<const double> samples);

// Empty: go on. Otherwise why sampling ends: "steps" (as many as asked for), "noise" (the criterion
// is met), "max-steps" or "max-seconds" (a cap came first: the criterion is not met).
std::string end_of_sampling(const SamplingRule& rule, std::span<const double> samples_ms);

}  // namespace tracestep
