// What `doctor --ceilings` shows of a CPU.
#pragma once

#include <vector>

#include "lab/report/table.h"
#include "run/run_spec.h"

namespace tracestep::cli {

// Multiply-adds, memory, the matrix products of training; errors as make_device().
std::vector<Table> cpu_ceiling_tables(const RunSpec& run);

}  // namespace tracestep::cli
