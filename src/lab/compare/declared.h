// The tables that can be compared, as the program writes them now. A result that does not say what
// its columns are, because it is comma-separated values or older than roles, is read by them.
#pragma once

#include <vector>

#include "lab/report/table.h"

namespace tracestep {

// These tables have no rows; they come in the order in which a comparison shows them: cells first,
// then their parts, the most detailed first.
const std::vector<Table>& declared_tables();

}  // namespace tracestep
