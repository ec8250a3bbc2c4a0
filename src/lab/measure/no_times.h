// Removes times from rows of a device that computes nothing: such rows have bytes, launches and
// FLOPs only.
#pragma once

#include <span>
#include <vector>

#include "lab/report/table.h"

namespace tracestep {

// Returns the row, in which all cells that rest on measured times (timing_of()) are emptied, lists
// of samples included.
std::vector<Json> without_times(std::span<const Column> columns, std::vector<Json> row);
// Empties the same cells as without_times(), in a row of the table itself.
void empty_times(Table& table, std::size_t row);

}  // namespace tracestep
