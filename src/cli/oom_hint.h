// What to try when a single run is out of memory.
#pragma once

#include <string>

#include "spec/run_spec.h"

namespace tracestep::cli {

// With a memory limit: the smallest change that fits, its peak, and the command that shows the
// others. Nothing runs; the search takes seconds for large models.
std::string oom_hint(const RunSpec& run);

}  // namespace tracestep::cli
