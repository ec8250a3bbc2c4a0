// Eager against compiled as tables: whole steps, attention alone, what is saved for backward, and
// the ladder.
#pragma once

#include <span>
#include <vector>

#include "lab/attention/run.h"
#include "lab/compile/ladder.h"
#include "lab/compile/run.h"
#include "lab/report/table.h"

namespace tracestep {

// Rows: cells; columns: time, launches, bytes, starts, and the speed against the first row of the
// same model, shape, mode and precision.
Table way_table(std::span<const CompileCell> cells);

// Rows: attention by itself in each way; columns: forward, backward and both, against the first row
// of the same width, context, mask and precision.
Table way_attention_table(std::span<const AttentionResult> results);

// Rows: parts of the last layer, the layer and the step, for each run; columns: how many saved
// tensors the part's backward reads (for the layer and the step: how many its forward made), how
// many of them are as large as the residual stream, and their bytes. By the programs alone.
Table way_saved_table(const DeviceFactory& make_device, std::span<const RunSpec> runs);

// Rows: each composite on operands of the run's sizes; columns: launches, bytes moved and kept, and
// FLOPs, forward and backward, in the form that the run's granularity and executor give it. By the
// programs alone. Modes have to be those with backward.
Table composite_table(const DeviceFactory& make_device, std::span<const RunSpec> runs);

// Parts of the report that come from the programs of runs alone, without a measurement. A further
// part is a function and its row in the list of these.
struct ProgramPart {
  const char* name;
  Table (*table)(const DeviceFactory& make_device, std::span<const RunSpec> runs);
};
inline constexpr ProgramPart kProgramParts[] = {
    {"saved", way_saved_table},
    {"composites", composite_table},
};

// Rows: the ground and each rung; columns: time with its interval, against the rung below and
// against the ground, launches, bytes, errors.
Table ladder_table(std::span<const LadderStep> steps);

}  // namespace tracestep
