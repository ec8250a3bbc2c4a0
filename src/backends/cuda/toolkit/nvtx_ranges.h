// Ranges for Nsight tools, in a domain of our own.
#pragma once

#include "runtime/range_sink.h"

namespace tracestep::cuda {

// The ranges of this process; nullptr when no tool is attached, so that ranges cost nothing.
RangeSink* nvtx_ranges();

}  // namespace tracestep::cuda
