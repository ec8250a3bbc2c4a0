// One cell may be timed in several parts of a study. What is said of one of its times minds the
// others.
#pragma once

#include <vector>

#include "lab/report/evidence.h"

namespace tracestep {

// The rows of other tables that have a time of a whole step of the row's cell.
std::vector<Evidence::Row> timed_elsewhere(const Evidence& e, const Evidence::Row& row);
// The time of such a row, in ms, with the noise that the row tells.
Quantity time_of(const Evidence::Row& row);
// The median of the row's samples_ms; as noise it has that of its samples, and how far the cell's
// other times lie from it.
Quantity median_anywhere(const Evidence& e, const Evidence::Row& row);
// "At other times in this study", where there are several.
Text at_times(std::size_t count);
// " At other times in this study NAME took 1.09 s, 1.14 s."; empty where there are none.
Text at_other_times(const Evidence& e, const Evidence::Row& row, const Text& name);

}  // namespace tracestep
