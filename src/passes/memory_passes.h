// Passes that save work, memory or traffic with the same ops as before.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "ir/op_def.h"
#include "ir/program.h"
#include "planning/device_traits.h"

namespace tracestep {

// Common subexpressions, identities and dead code. Merges equal nodes of the same phase and epoch
// (across phases a merge would lengthen lifetimes), drops movement that changes nothing, and
// removes unread nodes. Values stay bit-identical.
Program simplify(const Program& program);

// Removes dead code only.
Program remove_dead_nodes(const Program& program);

// As many chunks as still leave each one 1024 rows, and no more than make the logits of one as
// large as the rows that they are computed from ([rows, width] and [width, vocab]): smaller chunks
// would save little, and each reads and writes the whole gradient of the weights once more.
std::int64_t default_loss_chunks(std::int64_t rows, std::int64_t width, std::int64_t vocab);

// The loss in chunks of rows, so that the logits never exist as a whole.
//
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

// Feed-forwards of the layers in chunks of rows, so that their inner tensors never exist as a
// whole.
//
// Cuts what a feed-forward (`layers.N.ffn`) computes row by row into `chunks` parts of nearly equal
// numbers of rows, which run one after the other, in forward and in backward alike: products with
// weights, what is computed element by element between them, and in backward the products that sum
// over rows, which are added up in float32, chunk by chunk from the first rows on. 0: as many
// chunks as leave each one 1024 rows and make the inner tensor of one as large as a quarter of what
// the feed-forward reads. Where another node reads a result it is assembled. What works in another
// way (dropout, norms within) runs on whole tensors, and what depends on it. Backward reads the
// chunks of forward: where blocks are computed again, that is one chunk at a time too. Loss and
// gradients are those of the whole but for the rounding of sums over chunks.
Program chunk_ffn(const Program& program, std::int64_t chunks,
                  const std::function<bool(const OpDef&)>& has_kernel);

// Keeps a low-precision copy ("shadow") of each weight, so that steps need not cast the weights.
// Each cast of a float32 parameter (a node whose result has the role weight_cast) becomes the state
// shadow_name(). A program that updates a parameter and has its shadow writes the cast of the new
// value there: the one that reads the shadow in a whole step, another one where micro-batches read
// it. An op that widens its operands itself (OpDef::widens) reads gradients in their narrow dtype,
// without a cast. Values stay bit-identical as long as the states hold what the casts would give,
// which Store ensures.
//
// With kOutsideBlocks, weights in the model's blocks are cast in each step as before, so that
// nothing of their copies outlives what reads them, and recomputation may cast them again; with
// kInBlocks, those outside, as the head; with kNone, all.
enum class Shadows : std::uint8_t { kAll, kOutsideBlocks, kInBlocks, kNone };
Program shadow(const Program& program, Shadows which = Shadows::kAll);

// Values that are narrow in one place are read narrow in the others, where that changes no product.
// In mixed precision a gradient goes back through the casts of forward: it is widened, passes
// views, and is narrowed again for the products that read it.
//
// - What a cast narrows is read as it was before it was widened, through the views between them:
//   the same bits, without the wide tensor.
// - The gradient of a bias, a sum over all rows in backward, reads what the products read, and adds
//   it up in float32 (attribute `wide` of `sum`). Where the gradient was computed in float32 its
//   terms are rounded to the low dtype once, as those of the products with it are. The sum's error
//   is then at most u · Σ|x|, u = 2^-8 in bfloat16 and 2^-11 in float16 (half a unit in the last
//   place of each term), and about u · √Σx² where roundings are independent. A sum that is of
//   narrow terms already, as that of a product's bias, is not rounded to their dtype before it is
//   widened.
// - A cast behind views that bring a tensor in another order, in backward, stands in front of them,
//   if nothing else reads that: half the bytes are moved, and the cast may join what makes them.
Program narrow(const Program& program);

// Backward widens again what forward widened, so that the narrow value is kept and not the wide
// one. A float32 value that forward computes from a 16-bit one by a cast and sums with parameters
// (what a norm of queries reads; a bias that is no operand of its product), and that only ops which
// can be fused read in backward, is computed again there: half the bytes are kept, written and
// read, and the kernel that reads the value widens it itself. For devices with fused kernels;
// others would need launches for it. Values stay bit-identical.
Program keep_narrow(const Program& program);

// Gradients of slices that cover a tensor (queries, keys and values of one product) are parts of an
// assembly, written where they belong, where a sum of them padded with zeros would be read and
// written once for each. Values are the same, but that 0 + x is no rounding of -0.
Program assemble_slices(const Program& program);

// Fewer, larger matrix products.
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

// The state of zeros behind the shadow of a parameter, where pad() made one: "padding.NAME".
inline constexpr std::string_view kPaddingPrefix = "padding.";

// Rows of `columns` elements with padding that makes them begin at multiples of what a device's
// products read at once (16 bytes), or of its cache lines (128 bytes) where a row is long enough
// for the padding not to count. `columns` itself where rows are aligned without.
std::int64_t padded_columns(std::int64_t columns, std::int64_t bytes_each);

// Pads the head of a vocabulary that is no multiple of 8, so that products with it read and write
// aligned rows.
//
// Where the shadow of a weight [V,C] (passes/shadow.cpp) makes logits [...,V] of a loss, whose rows
// are not aligned: the shadow becomes a part of a block [Vp,C], which ends in a state of zeros. The
// logits are the product with the block; the loss takes their first V columns (attribute `columns`)
// and gives the others a gradient of zeros. What reads that gradient multiplies by the block, or
// makes Vp rows of the weight's gradient, of which V are a view; other readers read V of its
// columns. All values are sums of the same terms, and of zeros.
Program pad(const Program& program);

// What layers keep for backward, in the host's memory meanwhile. A value that forward makes and
// that backward reads when nodes of other layers have run in between is copied to a state there
// (`offloaded.N`, on lane 1) as soon as it is made, and copied back in front of its first reader in
// backward; earlier, behind the copy before, where that leaves the peak as it is on a device with
// these traits. Its buffer is free when forward has read it. Constants, numbers and casts of
// weights stay. Runs behind `recompute`, so that what blocks recompute from is moved. Values stay
// bit-identical.
inline constexpr std::string_view kOffloadedPrefix = "offloaded.";
Program offload_activations(const Program& program, const DeviceTraits& traits);

// Forward alone, keeping what backward would need: the `forward` mode of the benchmarks. From a
// program with forward and backward: drops everything but forward, and makes each forward value
// that backward reads an output "saved.N". Gradient outputs and updates are removed.
Program keep_saved(const Program& program);

}  // namespace tracestep
