// Rows of a device that computes nothing: they have bytes, launches and FLOPs, and no times.
#pragma once

#include <span>
#include <vector>

#include "lab/report/table.h"

namespace tracestep {

// The row without the cells that rest on times (timing_of()), samples among them.
std::vector<Json> without_times(std::span<const Column> columns, std::vector<Json> row);
// Empties such cells in a row of the table.
void empty_times(Table& table, std::size_t row);

}  // namespace tracestep
