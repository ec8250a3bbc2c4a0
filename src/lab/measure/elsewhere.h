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

}  // namespace tracestep
