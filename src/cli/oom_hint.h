// What to try when a single run is out of memory.
#pragma once

#include <string>
#include <string_view>

#include "run/run_spec.h"

namespace tracestep::cli {

// `error`: the message of the OutOfMemory, which names the memory that was full. Where that is the
// host's: how much of it the run needs. Else, with a memory limit: the smallest change that fits,
// its peak, and the command that shows the others. Nothing runs; the search takes seconds for large
// models.
std::string oom_hint(const RunSpec& run, std::string_view error);

}  // namespace tracestep::cli
