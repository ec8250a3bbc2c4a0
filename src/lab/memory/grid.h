// What tables of a grid share.
#pragma once

#include <span>

#include "lab/memory/tables.h"

namespace tracestep {

// The same cell in fp32, if it is in the grid.
const MemoryCell* in_fp32(std::span<const MemoryCell> cells, const MemoryCell& of);

}  // namespace tracestep
