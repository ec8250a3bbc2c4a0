// Compares the state of the machine while two rows, or two results, were measured.
#pragma once

#include <string>

#include "lab/compare/result_file.h"

namespace tracestep {

// Names what differed while two rows were measured (load, other work, CPU clocks, governor), if it
// differs by more than between two runs on an otherwise idle machine. Empty if nothing does, or if
// it was not recorded.
std::string different_conditions(const ResultRow& a, const ResultRow& b);

// Lists the facts on machine and build that differ between the environments of two results.
Table environment_table(const ResultFile& a, const ResultFile& b);

}  // namespace tracestep
