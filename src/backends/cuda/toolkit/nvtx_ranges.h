// Ranges for Nsight tools, in a domain of our own.
#pragma once

#include "runtime/range_sink.h"

namespace tracestep::cuda {

// Returns this process's ranges; nullptr when no tool is attached, so that ranges cost nothing.
RangeSink* nvtx_ranges();

}  // namespace tracestep::cuda
