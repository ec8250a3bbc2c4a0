// Sums over ranks in host memory: x₀ + x₁ + … in the order of the ranks, so that every communicator
// gives the same bits.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace tracestep {

// Sets elements [0, count) of `out` to the sums of those of `from`, one pointer for each rank;
// `out` may be one of them. float16 and bfloat16 are added up in float32 and rounded once.
void add_in_order(DType dtype, std::span<const void* const> from, std::int64_t count, void* out);

}  // namespace tracestep
