// Passes that say in which ops and dtypes a program computes.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "ir/builder.h"
#include "ir/op_def.h"
#include "ir/program.h"
#include "run/adapters.h"
#include "run/words.h"

namespace tracestep {

// adapt() applies the choice of which weights are trained. With adapters, every parameter becomes a
// constant, and results of two low-rank products are added to each product of a targeted weight;
// else the frozen parts become constants. kAdapterBatch is the input, i64 [1], from which dropout
// of adapters reads the number of the batch. A weight keeps its place in a block if either all or
// none of the block are trained. Throws Error{kUsage} for targets or parts that match nothing, and
// if nothing is left to train.
inline constexpr std::string_view kAdapterBatch = "dropout.batch";
Program adapt(const Program& program, const Adapters& lora, const FrozenParts& parts);

// Runs after `autocast`: a float32 constant that is only read as `low`, or row by row, gets that
// dtype and needs no cast. `kept`: constants that keep their dtype.
Program narrow_frozen(const Program& program, DType low, const std::set<std::string>& kept);

// Replaces ops by the form that the user chose (`--attention flash`). `forms`: from an op's name to
// the name of one of its OpDef::forms. Throws Error{kUsage} for a form that the op does not have.
Program choose(const Program& program, const std::map<std::string, std::string>& forms);

// Replaces composite ops by simpler ones until only wanted ops are left. Expands every node whose
// op has a decomposition and for which `expand` returns true, including nodes made by an expansion.
// Autograd then differentiates the parts.
Program decompose(const Program& program, const std::function<bool(const OpDef&)>& expand);

// Returns the ops into which a call of the composite `op` on operands of these types decomposes,
// in order; its attributes have their defaults.
std::vector<const OpDef*> parts_of(const OpDef& op, const std::vector<Type>& operands);

// Makes ops run in a low dtype or float32 (mixed precision), by the precision class of each.
//
// Casts floating operands where the class of the reading op asks for it:
//   low      to `low` (matrix products)
//   full     low operands to float32 (norms, softmax, losses)
//   promote  all to the widest dtype among them (sums of a residual and a low result)
//   keep     as they are; where a movement op joins several, to the widest
// float64 operands are left alone. The result dtype is inferred from the new operands, so the class
// and the operand types explain the dtype an op runs in. A leaf keeps its type: its new value is
// cast back.
//
// A weight is cast once and all its readers share the cast, which backward reads too; it has
// Role::kWeightCast and the path of the weight's component. Any other cast belongs to one reader
// and has its origin, so that gradients of a value with several readers are added in the value's
// own dtype; `simplify` merges equal forward casts afterwards.
// `low`: bf16 or f16.
Program autocast(const Program& program, DType low);

// Computes float32 products as products of float16 parts, which tensor cores multiply. Sets
// `by_parts` on every float32 product with at least 128 rows, columns and terms of each sum:
// smaller ones have less work than splitting their operands takes, and shorter sums are no more
// exact than those of the float32 units. Two products that are the gradients of one linear layer
// become one linear_grad, if there is a kernel for it, so that their operands are split once.
// Values keep their types, and results agree with float32 products up to their rounding
// (backends/cuda/split/product.h).
Program by_parts(const Program& program, const std::function<bool(const OpDef&)>& has_kernel);

// quantize() computes products with 8-bit operands: it replaces products in the layers of two
// bfloat16 matrices, whose sizes are multiples of 16, by `scaled_matmul`; all of them, or with
// `kPaying` those that become faster on a GPU, judged by their multiply-adds per element. Each
// operand is quantized once, with one scale, before its first reader; backward reads the same
// codes, also those of weights. Weights and activations are f8e4m3, gradients f8e5m2.
//
// With `kDelayed`, scales in a step come from the largest magnitudes in the step before, which the
// state kLargestMagnitudes holds for each operand in program order. A whole step replaces them by
// those that it finds, the largest over all ranks. A micro-batch stores what it finds in
// kFoundMagnitudes (the first one its own, the others the larger value), so that all micro-batches
// of a step use the same scales; the program that updates takes them from there
// (take_found_magnitudes).
//
// Ops that `has_kernel` rejects are decomposed. Throws Error{kUsage} if a step has no such product.
inline constexpr std::string_view kLargestMagnitudes = "fp8.largest";
inline constexpr std::string_view kFoundMagnitudes = "fp8.found";
struct QuantizeOptions {
  Float8Products products = Float8Products::kPaying;
  Float8Scaling scaling = Float8Scaling::kCurrent;
  bool may_have_none = false;
  // The kind of gradients in a micro-batch; kTransient: a whole step.
  GradientKind gradients = GradientKind::kTransient;
  int ranks = 1;  // The number of ranks in the run.
};
Program quantize(const Program& program, const QuantizeOptions& options,
                 const std::function<bool(const OpDef&)>& has_kernel);
// Runs after `quantize` if ranks hold parts of weights: a weight that is gathered only for 8-bit
// products is gathered in 8 bits. Each rank quantizes its part with the scale of the whole weight.
// For that, the largest magnitudes of all parts are gathered once at the beginning of a step, so
// the codes are those of a single rank, bit for bit. The transposed codes for backward are made
// after the gather in backward (`regather`).
Program gather_codes(const Program& program);
// Moves the magnitudes that the micro-batches of all ranks found to where the next step reads them.
// `found`: the type of their state.
void take_found_magnitudes(Builder& builder, const Type& found, int ranks);

// Runs after `quantize`: the result of swiglu, and its gradients if they lie side by side, are
// quantized in the kernel that computes them, if nothing else reads them. On a GPU this uses a
// faster sigmoid; where the separate ops run, values stay bit-identical.
Program quantize_sources(const Program& program);

// keep_codes() runs after `quantize` with delayed scales. It makes states of the codes of weights
// (their names begin with kCodesPrefix), which the weights' update writes, so that the next step
// need not read the weights. If one quantization alone reads the narrow copies of a weight, or of
// the parts of a block, "codes.NAME" and "codes.NAME.transposed" replace these copies.
// `adamw_codes` writes them with the scale from before the update. `refresh_codes`, before the
// first product, makes them anew if that scale does not fit, or if the store has set weights since
// (it then sets the states that begin with kFoundPrefix to 0). Values stay bit-identical. One call
// of each op serves all weights with the same number of parts.
inline constexpr std::string_view kCodesPrefix = "codes.";
Program keep_codes(const Program& program);

// Converts the program to float64, as the reference back end runs it. Every floating leaf,
// generator and cast target becomes f64, also inside the bodies of fused nodes; integers and
// booleans stay. Casts between floating types become copies.
Program as_float64(const Program& program);

// The suffixes of the constants that hold a weight in 4 bits, after the weight's own name.
inline constexpr std::string_view kNf4Codes = ".nf4", kNf4Magnitudes = ".nf4_magnitudes",
                                  kNf4Scales = ".nf4_scales", kNf4Offset = ".nf4_offset";

// Runs after `narrow_frozen`: a frozen matrix in the layers that only products read, as their
// second operand, is stored in 4 bits and widened by widen_nf4 (ops/nf4.cpp) before its first
// product. Matrices that do not consist of whole blocks of 64 elements stay as they are, and so do
// those in `kept`.
Program keep_nf4(const Program& program, const std::set<std::string>& kept);

}  // namespace tracestep
