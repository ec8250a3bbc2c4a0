#include "ops/rules.h"

namespace tracestep::rules {
namespace {

std::string operand(const OpCall& call, int i) {
  const auto at = std::min(static_cast<std::size_t>(i), call.op.inputs.size() - 1);
  return fmt::format("{} {}", call.op.inputs[at], call.inputs[static_cast<std::size_t>(i)].str());
}

const Type& type(const OpCall& call, int i) {
  return call.inputs[static_cast<std::size_t>(i)];
}

}  // namespace

void require_wider_than_float8(const OpCall& call, int i) {
  if (is_float8(type(call, i).dtype)) {
    fail_usage(call.op, "{} is an operand of scaled_matmul alone; cast it first", operand(call, i));
  }
}

void require_floating(const OpCall& call, int i) {
  if (!is_floating(type(call, i).dtype)) {
    fail_usage(call.op, "{} is not floating point; cast it first", operand(call, i));
  }
  require_wider_than_float8(call, i);
}

void require_integer(const OpCall& call, int i) {
  if (!is_integer(type(call, i).dtype)) {
    fail_usage(call.op, "{} does not hold indices; i64 is expected", operand(call, i));
  }
}

void require_same_dtype(const OpCall& call, int a, int b) {
  if (type(call, a).dtype != type(call, b).dtype) {
    fail_usage(call.op, "dtypes differ: {}, {}; cast one of them", operand(call, a),
               operand(call, b));
  }
}

void require_shape(const OpCall& call, int i, const Shape& shape) {
  if (type(call, i).shape != shape) {
    fail_usage(call.op, "{} has the wrong shape; {} is expected", operand(call, i), shape.str());
  }
}

void require_min_rank(const OpCall& call, int i, int rank) {
  if (type(call, i).shape.rank() < rank) {
    fail_usage(call.op, "{} has too few dimensions; at least {} are expected", operand(call, i),
               rank);
  }
}

void require_attention_operands(const OpCall& call, int q) {
  for (int i = q; i < q + 3; ++i) {
    require_floating(call, i);
    require_same_dtype(call, q, i);
    require_min_rank(call, i, 2);
  }
  Shape kv = type(call, q).shape;
  const Shape& k = type(call, q + 1).shape;
  if (k.rank() == kv.rank()) kv[kv.rank() - 2] = k.back(1);
  if (kv.rank() >= 3 && k.rank() == kv.rank() && kv.back(2) > 0 && k.back(2) > 0 &&
      kv.back(2) % k.back(2) == 0) {
    kv[kv.rank() - 3] = k.back(2);
  }
  require_shape(call, q + 1, kv);
  require_shape(call, q + 2, kv);
}

int normalized_axis(const OpCall& call, std::int64_t axis, int rank) {
  const std::int64_t at = axis < 0 ? axis + rank : axis;
  if (at < 0 || at >= rank) {
    fail_usage(call.op, "axis {} does not exist in a tensor of {} dimensions", axis, rank);
  }
  return static_cast<int>(at);
}

DType accumulation_dtype(DType dtype) {
  return dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}

std::vector<Type> same_type(const OpCall& call) {
  for (int i = 1; i < static_cast<int>(call.inputs.size()); ++i) {
    require_wider_than_float8(call, i);
    require_same_dtype(call, 0, i);
    if (type(call, i).shape != type(call, 0).shape) {
      fail_usage(call.op, "shapes differ: {}, {}; broadcast one of them", operand(call, 0),
                 operand(call, i));
    }
  }
  return {call.inputs[0]};
}

std::vector<Type> same_floating(const OpCall& call) {
  require_floating(call, 0);
  return same_type(call);
}

std::vector<Type> concatenated(const OpCall& call, int axis) {
  Type out = type(call, 0);
  for (int i = 1; i < static_cast<int>(call.inputs.size()); ++i) {
    Shape expected = out.shape;
    const Shape& shape = type(call, i).shape;
    if (shape.rank() == expected.rank()) expected[axis] = shape[axis];
    require_shape(call, i, expected);
    require_same_dtype(call, 0, i);
    out.shape[axis] += shape[axis];
  }
  return {out};
}

std::vector<Type> concatenated_along_axis(const OpCall& call) {
  const int rank = call.inputs[0].shape.rank();
  return concatenated(call, normalized_axis(call, call.attrs.integer("axis"), rank));
}

bool any_strides(int, const Type&, const Strides&) {
  return true;
}

bool contiguous(int, const Type& type, const Strides& strides) {
  return is_contiguous(type.shape, strides);
}

bool unit_inner_stride(int, const Type& type, const Strides& strides) {
  return type.shape.empty() || type.shape.back() <= 1 || strides.back() == 1;
}

std::function<std::int64_t(const OpCall&)> per_result(std::int64_t per_element) {
  return [per_element](const OpCall& call) { return per_element * call.outputs[0].count(); };
}

std::function<std::int64_t(const OpCall&)> per_operand(int input, std::int64_t per_element) {
  return [=](const OpCall& call) { return per_element * type(call, input).count(); };
}

Shape rows_of(const Shape& shape) {
  return Shape(std::span(shape.begin(), static_cast<std::size_t>(shape.rank() - 1)));
}

Shape column_of(Shape shape) {
  shape[shape.rank() - 1] = 1;
  return shape;
}

Dims all_but_last(const Shape& shape) {
  Dims axes;
  for (int i = 0; i + 1 < shape.rank(); ++i) axes.push_back(i);
  return axes;
}

}  // namespace tracestep::rules
