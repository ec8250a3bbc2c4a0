// Advises on a step that does not fit: names the holders of memory at the failing request, and
// changes that would make it fit (search.h) with the price of each.
#pragma once

#include "lab/fit/search.h"
#include "lab/memory/tables.h"

namespace tracestep {

// True if the step ran out of memory, or was predicted to need more than its limit.
bool runs_out(const MemoryCell& cell);

// Returns facts of the failed request, one a row: phase, node, bytes requested, alive and missing.
Table failure_table(const MemoryCell& cell);
// Returns the ten largest holders of memory at the failed request, each summed over all layers, and
// the remainder; the rows add up to all bytes that were alive.
Table failure_holder_table(const MemoryCell& cell);

// A row for each remedy of `advice`, with its cost. Notes name the margin, and what would fit
// without it.
Table remedy_table(const FitQuestion& asked, const Advice& advice);
// Returns a table of the smallest peaks that the search found, for the batch as asked and for one
// sequence, each with its bytes of weights and states, and its flags.
Table least_table(const FitQuestion& asked, const Advice& advice);

}  // namespace tracestep
