// What the machine can do at best, as tables: what every speed is a share of.
#pragma once

#include <vector>

#include "lab/report/table.h"
#include "spec/run_spec.h"

namespace tracestep::cli {

// Measures for about ten seconds on a CPU, two on a GPU. Errors as make_device().
std::vector<Table> ceiling_tables(const RunSpec& run);

}  // namespace tracestep::cli
