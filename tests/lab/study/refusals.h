// Checks the reason that a refused answer gives: what it says is missing is missing.
#pragma once

#include <span>
#include <string>

#include "lab/report/table.h"

namespace tracestep::testing {

// Says what is wrong with a reason of lab/report/evidence.cpp; empty: the tables bear it out.
std::string wrong_reason(const std::string& reason, std::span<const Table> tables);

}  // namespace tracestep::testing
