// Tables of the machine's ceilings, the highest speeds that it reaches.
#pragma once

#include <vector>

#include "lab/report/table.h"
#include "spec/run_spec.h"

namespace tracestep::cli {

// Measures for about ten seconds on a CPU, two on a GPU. Errors as make_device().
std::vector<Table> ceiling_tables(const RunSpec& run);

}  // namespace tracestep::cli
