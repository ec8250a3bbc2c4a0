// Active memory through a step, split by category: what a timeline is drawn from.
#pragma once

#include "lab/memory/tables.h"

namespace tracestep {

// Rows: every node that runs; columns: the bytes of each category that are alive at its fullest
// moment, by the program, which add up to the total; the measured total beside it.
Table stack_table(const MemoryCell& cell);

}  // namespace tracestep
