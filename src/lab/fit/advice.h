// Advises on a step that does not fit: names the holders of memory at the failing request, and
// changes that would make it fit (search.h) with the price of each.
#pragma once

#include "lab/fit/search.h"
#include "lab/memory/tables.h"

namespace tracestep {

// True if the step ran out of memory, or was predicted to need more than its limit.
bool runs_out(const MemoryCell& cell);

// A row with the request that failed: phase, node, bytes requested, bytes alive, bytes missing.
Table failure_table(const MemoryCell& cell);
// The ten largest holders of memory at that moment, with layers added up, and the remainder; the
// rows add up to all bytes that were alive.
Table failure_holder_table(const MemoryCell& cell);

// A row for each remedy of `advice`, with its cost. Notes name the margin, and what would fit
// without it.
Table remedy_table(const FitQuestion& asked, const Advice& advice);
// A table with the smallest peaks that were found, for the step as asked and for one sequence, and
// what holds the memory.
Table least_table(const FitQuestion& asked, const Advice& advice);

}  // namespace tracestep
