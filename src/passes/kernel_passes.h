// Passes that shape what a device launches: kernels that do several things, their operands, and
// their order.
#pragma once

#include <cstdint>
#include <functional>

#include "ir/op_def.h"
#include "ir/program.h"
#include "planning/cuda_plans.h"

namespace tracestep {

// Where a step computes the loss of logits and then its gradient, both become one node, which
// writes the gradient over the logits. Puts `cross_entropy_with_grad` in place of the two ops that
// it decomposes into. Logits that were widened for these two alone are read, and their gradient is
// written, in their own dtype. The loss is then known where the gradient was, and nodes that read
// it move behind that; a gradient that depends on the loss itself stays as it is.
Program overwrite(const Program& program, const std::function<bool(const OpDef&)>& has_kernel);

// A product whose result is added to another tensor becomes one op that does both, as a GEMM
// library can with its C operand; the sum then needs no launch of its own. Puts `matmul_add` in
// place of a sum and the product behind one of its terms, through casts to a wider dtype and
// reshapes that nothing else reads. The product then stands where the sum stood, and is not rounded
// to its own dtype before it is added. Its origins are the product's alone. Rows that are added at
// their indices (the gradient of an embedding) and then to another matrix become `scatter_add_to`,
// which reads that as it was before it was widened: in float32 values stay bit-identical.
//
// Where that matrix is the product of a head that is tied to the embedding, it is made last, just
// before the rows are added; with kFirst where it stood, behind the gradient of the logits, which
// then need not stay until backward ends. The first is better where all that is saved is alive when
// backward begins, which then is the fullest moment; the other one where backward computes again,
// and, whatever `head` says, where the product lies in the weights' narrow copy
// (analysis/places_in_copies.h).
enum class HeadGradient : std::uint8_t { kLast, kFirst };
Program epilogue(const Program& program, const std::function<bool(const OpDef&)>& has_kernel,
                 HeadGradient head = HeadGradient::kLast);

// A product of one row with parameters, as each new token of a decoded text has them, and what is
// around it become one `gemv`: the norm in front, which every thread block takes anew; gates; or a
// bias, an activation, or a sum behind it. What lies between is not rounded. All weights must be
// parameters that the program leaves as they are: they are read before earlier nodes have run.
Program gemv(const Program& program, const std::function<bool(const OpDef&)>& has_kernel);

// SwiGLU and its gradients become part of the products in front of them, where `pays` says that
// this is faster. Puts `matmul_swiglu` in place of a product with weights that lie side by side and
// the SwiGLU of its halves, which others may still read (`unread`: nobody does); and
// `matmul_swiglu_grad` in place of the product that alone makes the gradient of that, and the
// gradients that meet side by side. Values stay bit-identical. Time and bytes are those of the
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
Program fuse(const Program& program);

// A device without a kernel for it cannot run what `fuse` makes.
const OpDef& op_of_fused_nodes();

// True if the node reduces [..., W] over all dimensions but the last, column by column.
bool sums_columns(const Program& program, const Node& node);

// Ops on rows that also sum columns (the gradient of a norm's weight), in parts that can be fused.
// Replaces such an op by its decomposition, where each column is summed in two steps: over the rows
// of a part, which a block of a fused kernel does while it has the rows, then over the parts. Ops
// with too few rows, and those that still would not fit into one walk, stay as they are. Sums of
// columns that are computed element by element (gradients of biases) are taken in the same two
// steps, where there are enough rows.
Program split_column_sums(const Program& program);

// Makes one launch of several of the sums over parts that the split leaves: their parts are
// assembled side by side, and collectives that carry their results wait for it. Sums that others
// read too early for that stay alone.
Program merge_column_sums(const Program& program);

// Makes every copy explicit: no kernel and no view ever copies silently. Inserts `copy` before a
// movement op whose result cannot be a view and where an op does not accept an operand's strides,
// and `assign` where an update does not end in its leaf's own buffer. All readers share a copy. The
// result passes verify(…, kMaterialized).
Program materialize(const Program& program);

// The last part of materialize() alone, for a pass that orders a materialized program anew:
// `assign` where an update no longer ends in its leaf's own buffer.
Program assign_updates(Program program);

// The order in which nodes run. Keeps the program's order, but moves generators (constants)
// directly before their first reader, so that they are alive as briefly as possible.
Program schedule(const Program& program);

}  // namespace tracestep
