// Tables as no machine measured them: those of a small study with noise, ties, single rows,
// contradictions, missing columns, another order, and values that are nothing, none or huge.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "lab/report/evidence.h"
#include "lab/report/table.h"

namespace tracestep::testing {

// Changes the tables at random, mostly where `used` says that they were read. The same seed makes
// the same changes. Returns which tables it touched.
std::set<std::size_t> disturb(std::vector<Table>& tables, std::span<const RowRef> used,
                              std::uint64_t seed);

}  // namespace tracestep::testing
