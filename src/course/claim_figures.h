// Figures that the formulas of claims may look up: published numbers, model sizes, closed forms,
// our programs' figures, and sums in narrow formats.
#pragma once

#include "lab/pages/formula.h"

namespace tracestep {

//   model.L[small]                  also B, T, C, F, H, D, V, P
//   model.flops[small; 128]         of a forward pass at batch 4
//   course.saved[2.7B; 128; 2]      bytes of one graph, with so many tensors of B·H·T² per layer
//   program.forward[2.7B; 128; bf16]  the peak of our own forward, op by op, with what it saves
//   sum.value[1000; 0.01; fp32; fp16]  so many terms in the second format, summed in the first;
//   sum.stall, sum.term             the additions that changed the sum; the term as it is stored
//   any other source                a file of course/data, a column, and the row's cells
//                                   as published::number_at() takes them
// Returns the figure that has one of these names. CHECKs that there is one.
Quantity claim_figure(const LookUp& asked);

}  // namespace tracestep
