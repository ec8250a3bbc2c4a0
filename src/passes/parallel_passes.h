// Passes that divide a step among ranks. Their order and reasons: docs/decisions/passes.md.
#pragma once

#include <optional>
#include <string_view>

#include "ir/program.h"
#include "ops/rank_group.h"
#include "run/parallel.h"

namespace tracestep {

// Returns the axis along which ranks divide a parameter of nn/transformer.h: 0 if they divide
// the columns of the product x·Wᵀ (q, k, v, w1, w3) or the vocabulary, 1 if they divide the axis
// that it sums over (output_proj, w2). nullopt: every rank has the whole parameter.
std::optional<int> split_axis(std::string_view parameter);

// Divides weights, and the products with them, among the ranks of a replica (tensor parallelism).
//
// Each divided parameter becomes a leaf with the rank's part, and values that are computed from it
// become parts too: heads, the hidden layer, logits. A product that sums over divided terms is
// followed by an all_reduce. The input of a divided product passes through to_ranks, whose gradient
// is an all_reduce. The embedding gives zeros for tokens of other ranks, and is summed; the loss
// becomes cross_entropy_of_parts. Outputs are whole.
//
// With `divides_rows`, the all_reduce becomes a reduce_scatter, and ops between two divided
// products (norms, residual sums) have the rank's part of the rows; an all_gather in place of
// to_ranks joins them.
//
// Throws Error{kUsage} if sizes cannot be divided, or an op cannot compute its part alone.
// Source: Shoeybi et al. 2019, Megatron-LM, section 3; Korthikanti et al. 2022, section 4.2.2
// (rows).
Program split(const Program& program, const Parallel& choice);

// Divides weights (ZeRO-3): every rank keeps its part, and gathers the whole weight where it is
// read. Every parameter becomes a leaf with the rank's part ([part_count], in no block), and an
// all_gather directly before its first reader. Autograd makes the matching reduce_scatter.
Program shard(const Program& program, const RankGroup& group);

// Gathers divided weights in the dtype in which they are read. If all readers of a gathered
// parameter cast it to one low dtype, each rank casts its part and gathers that: the same bits in
// half the bytes. The cast has Role::kWeightCast.
Program narrow_gathers(const Program& program);

// Sums the gradients of the ranks' shares of the batch. Sums the outputs "grad.NAME" over all
// replicas, each where it is made, and "loss", which must be the replica's share of the whole loss.
// Under `shard`, outputs are the rank's part ([part_count]); with shard=1 they are made after all
// of backward. The sums that autograd has made (shard=3) are marked as communication too. Gradients
// in states (persistent ones) stay those of the rank. `overlap` decides which sums are issued
// together, and when.
Program reduce(const Program& program, const Parallel& choice);

// Adds the micro-batches of several replicas into one sum, in a fixed order. It is for a program
// that puts its gradients into states, or adds to them: the states then hold the gradients of the
// whole group after every run. They are added in one chain, x0 + x1 + x2 + …, in the order of ranks
// and then of runs, whatever the number of ranks: the first rank adds its gradient to the state,
// the others add theirs to nothing, and an all_reduce adds these in the order of ranks.
Program sum_shards(const Program& program, const RankGroup& group);

// Frees weights that were gathered for forward, and gathers them again for backward. Backward and
// recomputed nodes read a second all_gather of the same part, which stands before the first of
// them; what forward computed from the weights alone (views, casts) is computed again from it.
Program regather(const Program& program);

// Decides when collectives run: in batches, and at the same time as other nodes.
//
// Only reorders nodes and sets the attributes `lane` and `batch` of collectives:
// - Results for which only the optimizer, other collectives and outputs wait (sums of gradients,
//   gathered updates) are made together as soon as `choice.bucket_bytes` of them are ready. Their
//   readers stand after the next batch, so that they do not wait for one that has just begun. With
//   Overlap::kUpdates, all batches but the first are awaited at the end of backward. The last ones,
//   after backward, are not held back for more: they run beside the first updates.
// - Weights are gathered layer by layer, `choice.prefetch` layers before they are read.
// - Other collectives stay where they are.
// With `choice.overlap` off, the same batches run on lane 0, and nothing is gathered ahead.
// `program` must be materialized.
Program overlap(const Program& program, const Parallel& choice);

// Lets the collectives of a divided model run at the same time as nodes that do not wait for them.
// Only reorders nodes and sets `lane`: of the nodes between two collectives, those that the second
// one waits for come before it; the others (products for gradients of weights) come after it, on
// lane 0, and it runs on lane 1. Without others it stays on lane 0. `program` must be materialized.
// Source: Shoeybi et al. 2019, Megatron-LM (asynchronous all_reduce of the gradient of the input).
Program beside_products(const Program& program);

}  // namespace tracestep
