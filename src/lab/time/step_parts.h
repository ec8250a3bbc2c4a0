// Forward, backward and optimizer of a step, each timed alone: from an idle device until it is idle
// again. Neither a difference of two runs (forward-backward less forward) gives that, nor a range
// whose end does not wait for the device: that measures the host.
#pragma once

#include <span>
#include <vector>

#include "lab/measure/measurement.h"
#include "lab/measure/validity.h"
#include "lab/report/table.h"

namespace tracestep {

// Milliseconds of each step; empty: the step has no such part.
struct StepParts {
  std::vector<double> forward_ms, backward_ms, optimizer_ms;
};

// Where parts begin: at the first kernel that is not forward's, and at the first one after the last
// of backward. kNoNode: there is no such part.
struct PartStarts {
  NodeId backward = kNoNode, optimizer = kNoNode;
};
PartStarts part_starts(const Program& program);

// Runs `steps` steps that wait for the device between the parts, after a first one that does not
// count.
StepParts time_step_parts(Executor& executor, Device& device, Measurement& measurement, int steps);

// Rows: those rows of `bench` that have parts; columns: median and deviation of each part, and
// backward over forward.
Table step_part_table(std::span<const ResultRow> rows);

}  // namespace tracestep
