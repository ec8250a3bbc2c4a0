// Advises on a step that does not fit: names the holders of memory at the failing request, and
// changes that would make it fit (search.h) with the price of each.
#pragma once

#include "lab/fit/search.h"
#include "lab/memory/tables.h"

namespace tracestep {

// True if the step ran out of memory, or was predicted to need more than its limit.
bool runs_out(const MemoryCell& cell);

// The failing request: phase, node, bytes requested, bytes live, bytes missing.
Table failure_table(const MemoryCell& cell);
// The ten largest holders at that moment, layers added up, and the rest; the rows add up to what
// was live.
Table failure_holder_table(const MemoryCell& cell);

// Rows: the remedies of `advice`, each with its price. Notes: the margin, and what fits without it.
Table remedy_table(const FitQuestion& asked, const Advice& advice);
// Rows: the least peaks that were found, of the task and of one sequence, and what holds them.
Table least_table(const FitQuestion& asked, const Advice& advice);

}  // namespace tracestep
