// Passes that shape what a device launches: kernels that do several things, their operands, and
// their order.
#pragma once

#include <cstdint>
#include <functional>

#include "ir/op_def.h"
#include "ir/program.h"
#include "planning/cuda_plans.h"

namespace tracestep {

// Computes the loss of logits and its gradient in one node, which writes the gradient over the
// logits: `cross_entropy_with_grad` replaces the two ops that it decomposes into. Logits that were
// widened only for these two are read, and their gradient is written, in their own dtype. The loss
// is then computed where the gradient was, and nodes that read it move after that. A gradient that
// depends on the loss itself is left as it is.
Program overwrite(const Program& program, const std::function<bool(const OpDef&)>& has_kernel);

// epilogue() lets a product add to a tensor, as a GEMM library can with its C operand, so that the
// sum needs no launch: `matmul_add` replaces a sum and the product that makes one of its terms,
// through casts to a wider dtype and reshapes that nothing else reads. It then stands where the sum
// stood, is not rounded to the product's dtype before the addition, and has only the product's
// origins. `scaled_matmul_add` does the same for a product of codes and a leaf, the gradient of the
// micro-batches before.
// Rows that are added at indices (the gradient of an embedding), and then to another matrix, become
// `scatter_add_to`, which reads that matrix before it is widened; in float32 values stay
// bit-identical.
//
// HeadGradient: if that matrix is the gradient of a head tied to the embedding, kLast computes it
// just before the rows are added, and kFirst where it stood, right after the gradient of the
// logits, which can then be freed early. kLast is better if everything saved is alive when backward
// begins, the fullest moment; kFirst is better if backward recomputes, and is taken, whatever
// `head` says, if the product lies in the weights' narrow copy (analysis/places_in_copies.h).
enum class HeadGradient : std::uint8_t { kLast, kFirst };
Program epilogue(const Program& program, const std::function<bool(const OpDef&)>& has_kernel,
                 HeadGradient head = HeadGradient::kLast);

// The last step of epilogue(): sums of products with leaves that lie side by side in a block, such
// as the gradients of weights that one product reads, become one `matmul_add_rows`, or
// `scaled_matmul_add` of codes, where the products' first operands are neighbouring parts of one
// tensor. It stands where the last of the sums stood.
Program add_rows(const Program& program, const std::function<bool(const OpDef&)>& has_kernel);

// Joins a product of one row with parameters, as in decoding each token, with its neighbours into
// one `gemv`: the norm in front, which every thread block computes again; gates; or a bias, an
// activation or a sum after it. Values in between are not rounded. All weights must be parameters
// that the program does not update, because they are read before earlier nodes have run.
Program gemv(const Program& program, const std::function<bool(const OpDef&)>& has_kernel);

// Joins SwiGLU and its gradients with the products before them, if `pays` says that this is
// faster. `matmul_swiglu` replaces a product with weights that lie side by side and the SwiGLU of
// its halves, which others may still read (attribute `unread`: nobody does). `matmul_swiglu_grad`
// replaces the product whose only reader is the gradient of SwiGLU, together with that gradient,
// whose two results lie side by side. Values stay bit-identical. Time and bytes count in the
// products' parts of the model.
Program gate(const Program& program, const std::function<bool(const OpDef&)>& has_kernel,
             const std::function<bool(const GatedProductSizes&)>& pays);

// Fusion: replaces each region of elementwise ops, rotations, row ops and views by one node. Joins
// neighbours in the dataflow, and nodes that read the same operand, while the region can be
// computed in one walk (analysis/fused_body.h) and no path between its nodes leaves it. Only nodes
// of one phase and epoch are joined, and values read outside remain results, so what is saved for
// backward does not change. Where a reader would need a copy in another order, the region writes
// its result in that order. Casts of weights, gradients and the optimizer are not fused: their
// results take the storage of a leaf, and fused nodes have no donations. Several sums over parts of
// columns (passes/column_sums.cpp) are one launch.
//
// `with_updates`: elementwise ops of the optimizer are fused too. Such a node may write the new
// value of a leaf over the old one (attribute `in_place`; analysis/buffer_plan.cpp).
Program fuse(const Program& program, bool with_updates = false);

// Returns the op of the nodes that `fuse` makes. A device without a kernel for it cannot run them.
const OpDef& op_of_fused_nodes();

// True if the node reduces [..., W] over all dimensions but the last, column by column.
bool sums_columns(const Program& program, const Node& node);

// Makes ops on rows that also sum columns (such as the gradient of a norm's weight) fusible. Such
// an op is replaced by its decomposition, in which each column is summed in two steps: over the
// rows of a part, which a block of a fused kernel reads anyway, and then over the parts. Ops with
// too few rows, and those that still do not fit into one walk, stay as they are. Sums of columns
// that are computed element by element (gradients of biases) are also done in two steps if there
// are enough rows.
Program split_column_sums(const Program& program);

// Joins several sums over parts from split_column_sums() into one launch: their parts are assembled
// side by side, and collectives of their results wait for it. A sum that is read too early for that
// stays alone.
Program merge_column_sums(const Program& program);

// Makes every copy explicit: no kernel and no view ever copies silently. Inserts `copy` before a
// movement op whose result cannot be a view and where an op does not accept an operand's strides,
// and `assign` where an update does not end in its leaf's own buffer. All readers share a copy. The
// result passes verify(…, kMaterialized).
Program materialize(const Program& program);

// The last step of materialize() alone, for a pass that reorders a materialized program: adds
// `assign` where an update no longer ends in its leaf's own buffer.
Program assign_updates(Program program);

// Orders the nodes: keeps the program's order, but moves generators (constants) directly before
// their first reader, so that they are alive as briefly as possible.
Program schedule(const Program& program);

}  // namespace tracestep
