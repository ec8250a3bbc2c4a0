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

// A row for each cell: time, launches, bytes, starts, and the speed relative to the first row with
// the same model, shape, mode and precision.
Table way_table(std::span<const CompileCell> cells);

// A row for each way in which attention alone was run: forward, backward and both, relative to the
// first row with the same width, context, mask and precision.
Table way_attention_table(std::span<const AttentionResult> results);

// For each run, a row for each part of the last layer, for the layer and for the step: how many
// saved tensors the part's backward reads (for the layer and the step: how many its forward makes),
// how many of them are as large as the residual stream, and their bytes. Nothing is measured.
Table way_saved_table(const DeviceFactory& make_device, std::span<const RunSpec> runs);

// A row for each composite op on operands of the run's sizes: launches, bytes moved and kept, and
// FLOPs, in forward and backward, in the form that the run's granularity and executor give it.
// Nothing is measured; the runs' modes must have a backward pass.
Table composite_table(const DeviceFactory& make_device, std::span<const RunSpec> runs);

// A part of the report that is computed from programs without measuring. To add one, write a
// function and add its row to the list.
struct ProgramPart {
  const char* name;
  Table (*table)(const DeviceFactory& make_device, std::span<const RunSpec> runs);
};
inline constexpr ProgramPart kProgramParts[] = {
    {"saved", way_saved_table},
    {"composites", composite_table},
};

// A row for the run below all rungs and one for each rung: time with its interval, relative to the
// rung below and to the first row, launches, bytes, errors.
Table ladder_table(std::span<const LadderStep> steps);

}  // namespace tracestep
