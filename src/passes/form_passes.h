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

// Settles what is trained. With adapters every parameter becomes a constant, and beside each
// product of a targeted weight two of low rank are added to its result; else the frozen parts
// become constants. A dropout of adapters reads the input kAdapterBatch, i64 [1], the number of the
// batch. A weight keeps its place in a block if all of the block are trained, or none. Throws
// Error{kUsage} for targets or parts that match nothing, and where nothing is left to train.
inline constexpr std::string_view kAdapterBatch = "dropout.batch";
Program adapt(const Program& program, const Adapters& lora, const FrozenParts& parts);

// Behind `autocast`: constants of float32 that are read as `low` alone, or by rows, are of that
// dtype, and have no cast. `kept`: constants that keep their dtype.
Program narrow_frozen(const Program& program, DType low, const std::set<std::string>& kept);

// Replaces ops by the form that the user chose (`--attention flash`). `forms`: from an op's name to
// the name of one of its OpDef::forms. Throws Error{kUsage} for a form that the op does not have.
Program choose(const Program& program, const std::map<std::string, std::string>& forms);

// Replaces composite ops by simpler ones until only wanted ops are left. Expands every node whose
// op has a decomposition and for which `expand` returns true, including nodes made by an expansion.
// Autograd then differentiates the parts.
Program decompose(const Program& program, const std::function<bool(const OpDef&)>& expand);

// The ops that a call of the composite `op` on such operands is made of, in order; its attributes
// have their defaults.
std::vector<const OpDef*> parts_of(const OpDef& op, const std::vector<Type>& operands);

// Mixed precision: which ops run in a low dtype, by the precision class of their records.
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

// Products of float32 as products of float16 parts, which tensor cores multiply. Sets `by_parts` of
// every float32 product that has at least 128 rows, columns and terms of each sum: smaller ones
// have less work than splitting their operands takes, and sums shorter than that are no better than
// the float32 units' own. Two products that are the gradients of a linear layer become one
// linear_grad, where there is a kernel for it: what they read is then split once. Values keep their
// types; results agree with those of float32 products to their rounding
// (backends/cuda/split/product.h).
Program by_parts(const Program& program, const std::function<bool(const OpDef&)>& has_kernel);

// Products of 8-bit operands. Puts `scaled_matmul` in place of products within the layers that
// multiply two matrices of bfloat16 in sizes of multiples of 16: all of them, or with `kPaying`
// those that gain by it on a GPU, by their multiply-adds for each element of operands and result.
// Each operand is quantized once, before its first reader, with one scale; backward reads the same
// codes, those of weights too. Weights and activations are f8e4m3, gradients f8e5m2. With
// `kDelayed`, for steps, scales are those of the largest magnitudes of the step before, which the
// state kLargestMagnitudes holds, one for each operand in the order of the program. A whole step
// replaces them by those that it finds, the largest of all ranks. A micro-batch leaves what it
// finds in kFoundMagnitudes, the first one alone, the others where it is larger, so that all of a
// step have the same scales; the program that updates takes it from there (take_found_magnitudes).
// Ops that `has_kernel` rejects are decomposed. Throws Error{kUsage} where a step has no such
// product.
inline constexpr std::string_view kLargestMagnitudes = "fp8.largest";
inline constexpr std::string_view kFoundMagnitudes = "fp8.found";
struct QuantizeOptions {
  Float8Products products = Float8Products::kPaying;
  Float8Scaling scaling = Float8Scaling::kCurrent;
  bool may_have_none = false;
  GradientKind gradients = GradientKind::kTransient;  // of a micro-batch; kTransient: a whole step
  int ranks = 1;                                      // of the run
};
Program quantize(const Program& program, const QuantizeOptions& options,
                 const std::function<bool(const OpDef&)>& has_kernel);
// Runs behind `quantize`, where ranks hold weights in parts: weights that are gathered for products
// in 8 bits alone are gathered in 8 bits. Each rank quantizes its part with the scale of the whole
// weight, for which the largest magnitudes of all parts are gathered first: once in a step, in
// front of all, so that codes are those of one rank, to the bit. The transposed codes for backward
// are made behind a gather in backward (`regather`).
Program gather_codes(const Program& program);
// The magnitudes that the micro-batches of all ranks found, as those of the step before the next.
// `found`: the type of their state.
void take_found_magnitudes(Builder& builder, const Type& found, int ranks);

// Behind `quantize`: what swiglu computes, and its gradients where they lie side by side, quantized
// where they are computed, if nothing else reads them. On a GPU that takes a faster sigmoid; where
// the parts run, values stay bit-identical.
Program quantize_sources(const Program& program);

// Behind `quantize` with delayed scales: codes of weights are states, which their update writes
// while it has the weights, so that the next step need not read them. Where nothing but one
// quantization reads the narrow copies of a weight, or of the parts of a block, codes and
// transposed codes ("codes.NAME", "codes.NAME.transposed") take the place of these copies:
// `adamw_codes` writes them with the scale of the largest magnitude before the update, and
// `refresh_codes`, in front of the first product, looks whether that fits, and makes them anew
// where it does not or where the store has set weights since (states that begin with kFoundPrefix
// are then 0). Values stay bit-identical. One call of each op for all weights of as many parts.
inline constexpr std::string_view kCodesPrefix = "codes.";
Program keep_codes(const Program& program);

// Converts the program to float64, in which the reference back end runs it. Every floating leaf,
// generator and cast target becomes f64, inside the bodies of fused nodes too; integers and
// booleans stay. Casts between floating types are kept, as copies.
Program as_float64(const Program& program);

// The names of the constants that hold a weight in 4 bits, behind its own.
inline constexpr std::string_view kNf4Codes = ".nf4", kNf4Magnitudes = ".nf4_magnitudes",
                                  kNf4Scales = ".nf4_scales", kNf4Offset = ".nf4_offset";

// Behind `narrow_frozen`: frozen matrices within the layers that products alone read, as their
// second operand, become the operands of widen_nf4 (ops/nf4.cpp), which stands in front of their
// first product. Matrices of other than whole blocks of 64 elements stay, and so do those of
// `kept`.
Program keep_nf4(const Program& program, const std::set<std::string>& kept);

}  // namespace tracestep
