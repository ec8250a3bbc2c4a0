// Removes times from rows of a device that computes nothing: such rows have bytes, launches and
// FLOPs only.
#pragma once

#include <span>
#include <vector>

#include "lab/report/table.h"

namespace tracestep {

// The row with every cell emptied that rests on measured times (timing_of()), lists of samples
// included.
std::vector<Json> without_times(std::span<const Column> columns, std::vector<Json> row);
// As without_times(), for a row of the table in place.
void empty_times(Table& table, std::size_t row);

}  // namespace tracestep
