// Passes that save work, memory or memory traffic while the ops stay the same.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "ir/op_def.h"
#include "ir/program.h"
#include "planning/device_traits.h"

namespace tracestep {

// Removes common subexpressions, identities and dead code. Merges equal nodes of the same phase and
// epoch (a merge across phases would lengthen lifetimes), drops movement that changes nothing, and
// removes unread nodes. Values stay bit-identical.
Program simplify(const Program& program);

// Removes dead code only.
Program remove_dead_nodes(const Program& program);

// Returns the number of chunks for a loss of [rows, width] times [width, vocab]: as many as
// leave each chunk 1024 rows, but no more than make the logits of a chunk as large as the rows
// that they are computed from. Smaller chunks would save little, and each one reads and writes
// the whole gradient of the weights again.
std::int64_t default_loss_chunks(std::int64_t rows, std::int64_t width, std::int64_t vocab);

// Computes the loss in chunks of rows, so that the logits never exist as a whole.
//
// Cuts the product that makes the logits [N,V], their loss, its gradient and the products that read
// the gradient into `chunks` parts of nearly equal numbers of rows (0: default_loss_chunks), which
// run one after the other. Gradients by rows become parts of one assembly; gradients that sum over
// rows (of weights) are added up in float32, in the state of accumulated gradients if they go
// there. The mean is taken of sums over chunks, so loss and gradients differ from those of the
// whole only by rounding.
//
// The product and the loss of a chunk are forward nodes with an epoch of their own: they run when
// backward has begun, and are not saved for it. Without backward, only the loss is cut.
//
// Logits that something else reads, or that are not a product of two matrices, stay whole.
Program chunk_loss(const Program& program, std::int64_t chunks,
                   const std::function<bool(const OpDef&)>& has_kernel);

// Computes the feed-forwards of the layers in chunks of rows, so that their inner tensors never
// exist as a whole.
//
// Cuts what a feed-forward (`layers.N.ffn`) computes row by row into `chunks` parts of nearly equal
// numbers of rows, which run one after the other, in forward and in backward: products with
// weights, elementwise ops between them, and in backward the products that sum over rows, which are
// added up in float32, chunk by chunk. 0: as many chunks as leave each one 1024 rows and make its
// inner tensor as large as a quarter of the feed-forward's input. A result that another node reads
// is assembled. Ops that do not work row by row (dropout, norms inside), and what depends on them,
// run on whole tensors. Backward reads the chunks of forward; if blocks are recomputed, that is one
// chunk at a time too. Loss and gradients differ from those of the whole only by the rounding of
// sums over chunks.
Program chunk_ffn(const Program& program, std::int64_t chunks,
                  const std::function<bool(const OpDef&)>& has_kernel);

// shadow() keeps a low-precision copy ("shadow") of the weights that Shadows names, so that steps
// need not cast them. Each cast of such a parameter in float32 (a node whose result has the role
// weight_cast) becomes the state shadow_name(). A program that updates a parameter and has its
// shadow writes the cast of the new value there: the one that reads the shadow in a whole step,
// another one with micro-batches. An op that widens its operands itself (OpDef::widens) reads
// gradients in their narrow dtype, without a cast. Values stay bit-identical as long as the states
// hold what the casts would give, which Store ensures.
//
// With kOutsideBlocks, weights in the model's blocks are cast in each step as before, so that
// nothing of their copies outlives what reads them, and recomputation may cast them again; with
// kInBlocks, those outside, as the head; with kNone, all.
enum class Shadows : std::uint8_t { kAll, kOutsideBlocks, kInBlocks, kNone };
Program shadow(const Program& program, Shadows which = Shadows::kAll);

// Reads values in a narrow dtype where that changes no product. In mixed precision a gradient goes
// back through the casts of forward: it is widened, passes views, and is narrowed again for the
// products that read it.
//
// - A cast that narrows a widened value reads the value from before it was widened, through the
//   views in between: the same bits, without the wide tensor.
// - The gradient of a bias, a sum over all rows in backward, reads what the products read, and adds
//   it up in float32 (attribute `wide` of `sum`). If the gradient was computed in float32, its
//   terms are rounded to the low dtype once, as those of the products with it are. The sum's error
//   is then at most u · Σ|x|, u = 2^-8 in bfloat16 and 2^-11 in float16 (half a unit in the last
//   place of each term), and about u · √Σx² if roundings are independent. A sum whose terms are
//   narrow already, such as that of a product's bias, is not rounded to their dtype before it is
//   widened.
// - A cast in backward after views that reorder a tensor moves before them, if nothing else
//   reads that: half the bytes are moved, and the cast may be fused with what makes them.
Program narrow(const Program& program);

// Keeps the narrow value for backward instead of the widened one, and widens it again there. This
// applies to a float32 value that forward computes from a 16-bit one by a cast and by adding
// parameters (the input of a norm of queries; a bias that is no operand of its product), and that
// only fusible ops read in backward: half the bytes are kept, written and read, and the kernel that
// reads the value widens it itself. It is for devices with fused kernels; others would need
// launches for it. Values stay bit-identical.
Program keep_narrow(const Program& program);

// Writes the gradients of slices that cover a tensor (queries, keys and values of one product) side
// by side as parts of an assembly. Otherwise each would be padded with zeros, and their sum read
// and written once for each. Values are the same, except that adding 0 would turn -0 into 0.
Program assemble_slices(const Program& program);

// Merges matrix products into fewer, larger ones.
//
// Merges the products of weights that lie in one block of memory (BlockPart in ir/program.h):
// - those of one operand with every part become one product with the block, whose result has
//   theirs as slices (x·Wqᵀ, x·Wkᵀ, x·Wvᵀ);
// - a sum of products with every part becomes one product of an assembly of the other operands
//   with the block (dq·Wq + dk·Wk + dv·Wv);
// - products of those other operands with one value become a product of the assembly (dqᵀ·x,
//   dkᵀ·x, dvᵀ·x); where they are added to something, as gradients of micro-batches are, they
//   stay apart, since a product can add what it computes (passes/epilogue.cpp).
// Where all operands of such an assembly have their rows summed (gradients of biases), one sum of
// the assembly has those as slices. Where weights are cast, their block is cast as one. Where
// backward reads some results of a merged product and not the others, it reads copies, so that it
// does not keep all of them (`forward_alone`: also of what it would copy itself). Leaves, updates
// and outputs stay as they are. A merged sum is rounded once, where the products were rounded one
// by one; other values are sums of the same terms.
Program merge(const Program& program, bool forward_alone = false);

// The prefix of the state of zeros that pad() puts after the shadow of a parameter:
// "padding.NAME".
inline constexpr std::string_view kPaddingPrefix = "padding.";

// Returns how many columns rows get when padded, so that they begin at multiples of what a
// device's products read at once (16 bytes), or of its cache lines (128 bytes) if rows are so
// long that the padding hardly counts. Returns `columns` if rows are aligned already.
std::int64_t padded_columns(std::int64_t columns, std::int64_t bytes_each);

// Pads the head of a vocabulary that is no multiple of 8, so that its products read and write
// aligned rows.
//
// This applies if the shadow of a weight [V,C] (passes/shadow.cpp) makes logits [...,V] of a loss,
// whose rows are not aligned. The shadow becomes a part of a block [Vp,C], which ends in a state of
// zeros. The logits are the product with the block; the loss uses their first V columns (attribute
// `columns`) and gives the others a gradient of zeros. Readers of that gradient multiply by the
// block, or compute Vp rows of the weight's gradient, of which V are a view; other readers read V
// of its columns. All values are sums of the same terms, and of zeros.
Program pad(const Program& program);

// offload_activations() keeps what layers save for backward in the host's memory meanwhile. A value
// that forward makes, and backward reads after nodes of other layers, is copied to a state in host
// memory (kOffloadedPrefix and a number, on lane 1) as soon as it is made, and copied back before
// its first reader in backward; earlier, right after the copy before it, if the peak on a device
// with these traits stays the same. Its buffer is free once forward has read it. Constants, numbers
// and casts of weights are not moved. Runs after `recompute`, so that the inputs of recomputed
// blocks are moved. Values stay bit-identical.
inline constexpr std::string_view kOffloadedPrefix = "offloaded.";
Program offload_activations(const Program& program, const DeviceTraits& traits);

// Makes forward alone that keeps what backward would need, which is the `forward` mode of the
// benchmarks. From a program with forward and backward it drops everything but forward, and makes
// each forward value that backward reads an output "saved.N". Gradient outputs and updates are
// removed.
Program keep_saved(const Program& program);

}  // namespace tracestep
