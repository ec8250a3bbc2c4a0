// Lists the tables that can be compared, as the program writes them today. Results that do not
// describe their columns (CSV files, and files older than column roles) are read by this list.
#pragma once

#include <vector>

#include "lab/report/table.h"

namespace tracestep {

// The tables that can be compared, without rows, in the order in which a comparison shows them:
// cells first, then their parts, the most detailed first.
const std::vector<Table>& declared_tables();

}  // namespace tracestep
