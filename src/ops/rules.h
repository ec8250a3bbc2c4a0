// Type, layout and cost rules that several op records share.
#pragma once

#include <string>

#include "ir/op_def.h"

namespace tracestep::rules {

// Throws Error{kUsage, "[op]"} for a float8 operand; the checks below throw if one does not fit.
void require_wider_than_float8(const OpCall& call, int input);
// Requires a floating type in which values can be computed, which excludes float8.
void require_floating(const OpCall& call, int input);
void require_integer(const OpCall& call, int input);
void require_same_dtype(const OpCall& call, int a, int b);
void require_shape(const OpCall& call, int input, const Shape& shape);
void require_min_rank(const OpCall& call, int input, int rank);
// Requires q [..., T_q, D] as operand `q`, then k and v [..., T_k, D], all floating and of one
// dtype. The heads of k and v (the axis before the tokens) may be fewer, and must divide q's.
void require_attention_operands(const OpCall& call, int q);
// Returns `axis`, which may be negative, counted from the front.
int normalized_axis(const OpCall& call, std::int64_t axis, int rank);

// Returns the dtype in which sums and statistics are kept: f64 for f64, otherwise f32.
DType accumulation_dtype(DType dtype);

// --- type rules --------------------------------------------------------------------------------
// Requires floating operands of one type, which is that of the one result.
std::vector<Type> same_floating(const OpCall& call);
// Requires operands of one type: a single one of any dtype, several of any dtype but float8.
std::vector<Type> same_type(const OpCall& call);

// Requires operands of one dtype that differ in the size of `axis` at most; the result has all
// their entries.
std::vector<Type> concatenated(const OpCall& call, int axis);
// Returns concatenated() along the axis that the attribute `axis` names.
std::vector<Type> concatenated_along_axis(const OpCall& call);

// --- shapes of norms over the last axis ---------------------------------------------------------
Shape rows_of(const Shape& shape);      // The shape without the last axis.
Shape column_of(Shape shape);           // The shape with one element along the last axis.
Dims all_but_last(const Shape& shape);  // All axes but the last.

// Rules for OpDef::accepts: any strides, row-major without holes, or stride 1 along the last axis.
bool any_strides(int input, const Type& type, const Strides& strides);
bool contiguous(int input, const Type& type, const Strides& strides);
bool unit_inner_stride(int input, const Type& type, const Strides& strides);

// --- cost --------------------------------------------------------------------------------------
// Returns a rule that counts `per_element` operations for each element of result 0.
std::function<std::int64_t(const OpCall&)> per_result(std::int64_t per_element);
// Returns a rule that counts `per_element` operations for each element of operand `input`.
std::function<std::int64_t(const OpCall&)> per_operand(int input, std::int64_t per_element);

}  // namespace tracestep::rules
