// The ActivityTracer of this back end: CUPTI's activity records of kernels, copies, fills and the
// calls that asked for them, with the node as external correlation id.
#pragma once

#include <memory>
#include <string>

#include "runtime/activity_tracer.h"

namespace tracestep::cuda {

// Attaches CUPTI to this process until the tracer is destroyed. Returns nullptr and sets `problem`
// when there is no libcupti or another profiler is attached.
std::unique_ptr<ActivityTracer> make_cupti_tracer(std::string& problem);

}  // namespace tracestep::cuda
