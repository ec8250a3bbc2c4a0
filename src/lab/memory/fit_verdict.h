// The answer to "would it fit" in one line, which a report of a hundred lines must not hide.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lab/memory/tables.h"

namespace tracestep {

// Whether the step ran out of memory, or was predicted to need more than its limit.
bool runs_out(const MemoryCell& cell);

// "It fits: the peak is 20.18 GiB, 3.82 GiB below the limit of 24.00 GiB"; for one step that does
// not fit, with the smallest remedy; for several, how many fit.
std::string fit_verdict(std::span<const MemoryCell> cells, std::int64_t limit);

}  // namespace tracestep
