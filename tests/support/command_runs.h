// The runs that a command measures, by its flags.
#pragma once

#include <string>
#include <vector>

#include "run/run_spec.h"

namespace tracestep::testing {

// The runs of "tracestep bench --size small --batch 2,4"; flags that are of no run are left out.
std::vector<RunSpec> runs_of(const std::string& command);
RunSpec run_of(const std::string& command);  // the first of them

}  // namespace tracestep::testing
