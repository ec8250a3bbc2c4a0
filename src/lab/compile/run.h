// Eager against compiled: one step run in several ways, each with its time, its launches, its bytes
// and the time until its first step is done.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "lab/precision/tables.h"
#include "lab/time/cell.h"

namespace tracestep {

struct CompileSpec {
  Protocol protocol = {.warmup = 3, .recorded_steps = 0};
  bool starts = true;  // also measure_starts()
};

// From the specification of a run to the end of its first step: program, passes, plan, kernels,
// that step. Filling in weights is left out, and so is starting the device.
struct StartTimes {
  double first_ms = 0;   // without any kernels kept from earlier runs
  double second_ms = 0;  // with those that the first start has kept
};

struct CompileCell {
  CellResult result;
  std::optional<StartTimes> start = {};
};

// Two starts, each on a new device, with a folder for compiled kernels that is removed afterwards.
// Throws OutOfMemory.
StartTimes measure_starts(const DeviceFactory& make_device, const RunSpec& run);

// Measures the starts of a cell that ran; it stays without them where they run out of memory.
void add_start(const DeviceFactory& make_device, CompileCell& cell);

// Bytes that the kernels of a step move, modelled: each reads every distinct element of its
// operands once and writes its results once.
std::int64_t moved_bytes(const Program& program);

}  // namespace tracestep
