// The closed forms of docs/memory.md with this cell's numbers in them, beside what the program has
// and what was measured.
#pragma once

#include "lab/memory/tables.h"

namespace tracestep {

// Rows: quantities; columns: formula, formula with numbers, bytes by it, by the program, measured,
// and the difference in percent. Forms that hold for one number format alone are left out under
// autocast.
Table formula_table(const MemoryCell& cell);

// Elements that one layer saves for backward, and what is saved once beside the layers.
std::int64_t saved_elements_per_layer(const RunSpec& step);
std::int64_t saved_bytes_once(const RunSpec& step, std::int64_t element_bytes);
// The same of one layer as the course's PyTorch code keeps it, with `scores` tensors of B·H·T².
std::int64_t course_elements_per_layer(const ModelConfig& model, BatchShape shape, int scores = 2);

}  // namespace tracestep
