// Times forward, backward and optimizer of a step separately, each from an idle device until the
// device is idle again. The difference between two runs (forward-backward and forward) is not the
// same, and a range that does not wait for the device only times the host.
#pragma once

#include <span>
#include <vector>

#include "lab/measure/measurement.h"
#include "lab/measure/validity.h"
#include "lab/report/table.h"

namespace tracestep {

// Milliseconds in each step; empty: the step has no such part.
struct StepParts {
  std::vector<double> forward_ms, backward_ms, optimizer_ms;
};

// The nodes at which the parts begin: the first kernel that is not of forward, and the first one
// after the last of backward. kNoNode: there is no such part.
struct PartStarts {
  NodeId backward = kNoNode, optimizer = kNoNode;
};
PartStarts part_starts(const Program& program);

// Runs `steps` steps that wait for the device between the parts, after one step that does not
// count.
StepParts time_step_parts(Executor& executor, Device& device, Measurement& measurement, int steps);

// Makes a table with a row for each row of `bench` that has parts: median and deviation of each
// part, and backward over forward.
Table step_part_table(std::span<const ResultRow> rows);

}  // namespace tracestep
