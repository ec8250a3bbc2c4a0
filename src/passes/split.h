// Tensor parallel: the ranks of a replica divide its weights and the products with them.
#pragma once

#include <optional>
#include <string_view>

#include "ir/program.h"
#include "run/parallel.h"

namespace tracestep {

// The axis along which ranks divide a parameter of nn/transformer.h: 0 where they divide the
// columns of the product x·Wᵀ (q, k, v, w1, w3) or the vocabulary, 1 where they divide what it sums
// over (output_proj, w2). nullopt: every rank has the whole parameter.
std::optional<int> split_axis(std::string_view parameter);

// Makes those parameters leaves of the rank's part, and what is computed from them parts too:
// heads, the hidden layer, logits. A product that sums over divided terms is followed by an
// all_reduce; what a divided product reads passes through to_ranks, whose gradient is another one.
// The embedding takes rows of other ranks as zeros, and sums; the loss becomes
// cross_entropy_of_parts. Outputs are whole.
//
// With `divides_rows`, the all_reduce becomes a reduce_scatter, and what lies between two divided
// products (norms, residual sums) has the rank's part of the rows, which an all_gather in the place
// of to_ranks puts together.
//
// Error{kUsage} where sizes cannot be divided, or an op cannot compute its part alone.
// Source: Shoeybi et al. 2019, Megatron-LM, section 3; Korthikanti et al. 2022, section 4.2.2
// (rows).
Program split(const Program& program, const Parallel& choice);

}  // namespace tracestep
