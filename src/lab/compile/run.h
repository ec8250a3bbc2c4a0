// Runs one step eagerly and compiled, in several ways, each with its time, launches, bytes and the
// time until its first step is done.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "lab/precision/tables.h"
#include "lab/time/cell.h"

namespace tracestep {

struct CompileSpec {
  Protocol protocol = {.warmup = 3, .recorded_steps = 0};
  bool starts = true;  // True: also measure_starts().
};

// The time from the specification of a run to the end of its first step: building the program,
// passes, planning, compiling kernels, and the step itself. Initialising weights and starting the
// device are not included.
struct StartTimes {
  double first_ms = 0;  // The time of a start that finds no compiled kernels of earlier runs.
  // The time of a start that finds the kernels which the first start has compiled.
  double second_ms = 0;
};

struct CompileCell {
  CellResult result;
  std::optional<StartTimes> start = {};
};

// Measures two starts, each on a new device. Compiled kernels are kept in a folder that is removed
// afterwards. Throws OutOfMemory.
StartTimes measure_starts(const DeviceFactory& make_device, const RunSpec& run);

// Measures the starts of a cell that ran. If they run out of memory, the cell stays without them.
void add_start(const DeviceFactory& make_device, CompileCell& cell);

// Bytes that the kernels of a step move, modelled: each reads every distinct element of its
// operands once and writes its results once.
std::int64_t moved_bytes(const Program& program);

}  // namespace tracestep
