// The ActivityTracer of this back end: CUPTI's activity records of kernels, copies, fills and the
// calls that asked for them, with the node as external correlation id.
#pragma once

#include <memory>
#include <string>

#include "runtime/activity_tracer.h"

namespace tracestep::cuda {

// Attaches CUPTI to this process; it lets go when the tracer is destroyed. nullptr, with `problem`
// set: no libcupti, or something else profiles already.
std::unique_ptr<ActivityTracer> make_cupti_tracer(std::string& problem);

}  // namespace tracestep::cuda
