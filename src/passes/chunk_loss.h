// The loss in chunks of rows, so that the logits never exist as a whole.
#pragma once

#include <cstdint>
#include <functional>

#include "ir/op_def.h"

namespace tracestep {

// As many chunks as still leave each one 1024 rows, and no more than make the logits of one as
// large as the rows that they are computed from ([rows, width] and [width, vocab]): smaller chunks
// would save little, and each reads and writes the whole gradient of the weights once more.
std::int64_t default_loss_chunks(std::int64_t rows, std::int64_t width, std::int64_t vocab);

// Cuts the product that makes logits [N,V], their loss, the gradient of that and the products that
// read it into `chunks` parts of nearly equal numbers of rows (0: default_loss_chunks), which run
// one after the other. Gradients by rows become parts of one assembly; those that are summed over
// the rows (of weights) are added up in float32, in the state of accumulated gradients if they go
// into one. The mean is taken of sums over chunks: loss and gradients are those of the whole but
// for rounding.
//
// The product and the loss of a chunk are forward nodes with an epoch of their own: they run when
// backward has begun, and are not saved for it. Without backward, the loss alone is cut.
//
// Logits that something else reads, or that come from no product of two matrices, stay whole.
Program chunk_loss(const Program& program, std::int64_t chunks,
                   const std::function<bool(const OpDef&)>& has_kernel);

}  // namespace tracestep
