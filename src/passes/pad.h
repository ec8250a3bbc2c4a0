// Pads the head of a vocabulary that is no multiple of 8, so that products with it read and write
// aligned rows.
#pragma once

#include <cstdint>
#include <string_view>

#include "ir/program.h"

namespace tracestep {

// The state of zeros behind the shadow of a parameter is called "padding.NAME".
inline constexpr std::string_view kPaddingPrefix = "padding.";

// Rows of `columns` elements with padding that makes them begin at multiples of what a device's
// products read at once (16 bytes), or of its cache lines (128 bytes) where a row is long enough
// for the padding not to count. `columns` itself where rows are aligned without.
std::int64_t padded_columns(std::int64_t columns, std::int64_t bytes_each);

// Where the shadow of a weight [V,C] (passes/shadow.h) makes logits [...,V] of a loss, whose rows
// are not aligned: the shadow becomes a part of a block [Vp,C], which ends in a state of zeros. The
// logits are the product with the block; the loss takes their first V columns (attribute `columns`)
// and gives the others a gradient of zeros. What reads that gradient multiplies by the block, or
// makes Vp rows of the weight's gradient, of which V are a view; other readers read V of its
// columns. All values are sums of the same terms, and of zeros.
Program pad(const Program& program);

}  // namespace tracestep
