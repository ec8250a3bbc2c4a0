// The ActivityTracer of this back end: CUPTI's activity records of kernels, copies, fills and the
// calls that asked for them, with the node as external correlation id. Kernels of a graph, which
// one call launches, are told apart by the ids of the graph's nodes: CUPTI calls back when a node
// is captured, and again when a graph is instantiated from copies of its nodes.
#pragma once

#include <memory>
#include <string>

#include "runtime/activity_tracer.h"

namespace tracestep::cuda {

// Attaches CUPTI to this process until the tracer is destroyed. Returns nullptr and sets `problem`
// when there is no libcupti or another profiler is attached.
std::unique_ptr<ActivityTracer> make_cupti_tracer(std::string& problem);

}  // namespace tracestep::cuda
