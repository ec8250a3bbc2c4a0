// The closed forms of docs/memory.md evaluated for a cell, beside the program's and the measured
// bytes.
#pragma once

#include "lab/memory/tables.h"

namespace tracestep {

// Rows: quantities; columns: formula, formula with numbers, bytes by the formula, by the program
// and measured, and the difference in percent. Formulas that hold for a single number format are
// left out under autocast.
Table formula_table(const MemoryCell& cell);

// Elements that one layer saves for backward, and bytes that are saved once beside the layers.
std::int64_t saved_elements_per_layer(const RunSpec& step);
std::int64_t saved_bytes_once(const RunSpec& step, std::int64_t element_bytes);
// The same of one layer as the course's PyTorch code keeps it, with `scores` tensors of B·H·T².
std::int64_t course_elements_per_layer(const ModelConfig& model, BatchShape shape, int scores = 2);

}  // namespace tracestep
