// Compares the state of the machine while two rows, or two results, were measured.
#pragma once

#include <string>

#include "lab/compare/result_file.h"

namespace tracestep {

// The load, other work, CPU clocks and governor of two rows where they differ by more than they do
// between two runs on a machine that does nothing else; empty: they do not, or are not recorded.
std::string different_conditions(const ResultRow& a, const ResultRow& b);

// Lists the facts on machine and build that differ between the environments of two results.
Table environment_table(const ResultFile& a, const ResultFile& b);

}  // namespace tracestep
