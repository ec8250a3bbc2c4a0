// Passes that divide a step among ranks. Their order and reasons: docs/decisions/passes.md.
#pragma once

#include <optional>
#include <string_view>

#include "ir/program.h"
#include "ops/rank_group.h"
#include "run/parallel.h"

namespace tracestep {

// The axis along which ranks divide a parameter of nn/transformer.h: 0 where they divide the
// columns of the product x·Wᵀ (q, k, v, w1, w3) or the vocabulary, 1 where they divide what it sums
// over (output_proj, w2). nullopt: every rank has the whole parameter.
std::optional<int> split_axis(std::string_view parameter);

// Tensor parallel: the ranks of a replica divide its weights and the products with them.
//
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

// Weights in parts: every rank keeps its own, and gathers the whole where it is read. Makes every
// parameter a leaf of its part alone ([part_count], in no block), and an all_gather of it directly
// before its first reader. Autograd makes the reduce_scatter that belongs to it.
Program shard(const Program& program, const RankGroup& group);

// Weights that are parts are gathered in the dtype in which they are read. Where all readers of a
// gathered parameter cast it to one low dtype, each rank casts its part and gathers that: the same
// bits in half the bytes. The cast has Role::kWeightCast.
Program narrow_gathers(const Program& program);

// Gradients of one rank's share of the batch become those of the whole batch. Sums the outputs
// "grad.NAME" over all replicas, each where it is made, and "loss": each one's loss must be its
// share of the whole one. Under `shard`, outputs are the rank's part ([part_count]); with shard=1
// they are made after all of backward. The sums that autograd has made (shard=3) count as
// communication too. Gradients in states (persistent ones) stay those of the rank. Which sums are
// issued together, and when, is left to `overlap`.
Program reduce(const Program& program, const Parallel& choice);

// Micro-batches of several replicas as consecutive shards of one sum. For a program that puts its
// gradients into states, or adds them: the states become those of the whole group after every run.
// They are added up in one chain, x0 + x1 + x2 + …, in the order of the ranks and then of the runs,
// whatever the number of ranks: the first rank adds its gradient to the state, the others to
// nothing, and an all_reduce adds up these in the order of the ranks.
Program sum_shards(const Program& program, const RankGroup& group);

// Weights that were gathered for forward are given up, and gathered again for backward. Backward
// and recomputed nodes read a second all_gather of the same part, which stands before the first of
// them, and what forward made of the weights alone (views, casts) is made from it again.
Program regather(const Program& program);

// Decides when collectives run: in batches, beside the other nodes.
//
// Only orders nodes and sets the attributes `lane` and `batch` of collectives:
// - Results that nothing but the optimizer, other collectives and outputs wait for (sums of
//   gradients, gathered updates) are made together when `choice.bucket_bytes` of them are there.
//   What reads them stands behind the next batch, so that it does not wait for one just begun.
//   With Overlap::kUpdates all but the first batch wait for the end of backward.
//   Behind backward the last ones do not wait for more: they run beside the first updates.
// - Weights are gathered layer by layer, `choice.prefetch` layers before they are read.
// - Other collectives stay where they are.
// With `choice.overlap` off they run in the same batches on lane 0, and nothing is gathered ahead.
// `program` is materialized.
Program overlap(const Program& program, const Parallel& choice);

}  // namespace tracestep
