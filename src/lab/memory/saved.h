// What a step saves for backward, as tables: per op, per block, value by value, and the price of
// computing each again instead.
#pragma once

#include "lab/memory/tables.h"

namespace tracestep {

// Rows: component and op, layers added up, and the total; columns: bytes, share, and what
// computing them again would take.
Table saved_by_op_table(const MemoryCell& cell);
// Rows: blocks ("layers.0" to "layers.31" in one row when they save the same), what belongs to
// none, and the total.
Table saved_by_block_table(const MemoryCell& cell);
// Rows: every saved value with its readers, its life and its price; the cheapest per byte first.
Table ledger_table(const MemoryCell& cell);

}  // namespace tracestep
