// Random questions of what makes a step fit, each small enough to try every answer.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "planning/device_traits.h"
#include "run/run_spec.h"

namespace tracestep::testing {

struct FitCase {
  RunSpec step;
  DeviceTraits traits;
  std::vector<Parallel> parallels = {};  // of ranks that share the step; empty: one device
  bool has_micro_batches = false;
  double fill = 0;  // where the limit is: 0 the least peak of the task, 1 that of the step
  double margin = 0;
};

// Registers the devices that run the answers; call it first.
void register_fit_devices();

// Draws a model of one to eight layers; where ranks share it, most fields are given already.
FitCase random_case(std::mt19937& random);

// Names what is wrong with the search's answer; empty: nothing. It must be within 2 % of the best
// time of all sets of changes of each severity; nothing beyond the limit less its margin, neither
// by whole programs nor, on a CPU, when the first answer runs on a device that has no more; and
// another task only where no set keeps it.
std::string fault_of(const FitCase& question);

}  // namespace tracestep::testing
