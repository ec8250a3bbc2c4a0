// Movement that copies: every element goes from one index to another.
#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"

namespace tracestep::reference {
namespace {

// Sets to[index + shift along axis] = from[index] for every element of `from`.
void copy_elements(const TensorRef& from, const TensorRef& to, int axis = 0,
                   std::int64_t shift = 0) {
  with_type(from.dtype, [&](auto zero) {
    using T = decltype(zero);
    const View<T> x(from), y(to);
    for_each_index(from.shape, [&](const Dims& i) {
      y[shift == 0 ? i : replaced(i, axis, i[axis] + shift)] = x[i];
    });
  });
}

void copy(const KernelCall& call) {
  copy_elements(call.inputs[0], call.outputs[0]);
}

void assign(const KernelCall& call) {
  copy_elements(call.inputs[1], call.outputs[0]);
}

void pad_slice(const KernelCall& call) {
  const TensorRef& y = call.outputs[0];
  with_type(y.dtype, [&](auto zero) {
    const View<decltype(zero)> out(y);
    for_each_index(y.shape, [&](const Dims& i) { out[i] = zero; });
  });
  const int axis = axis_of(call.attrs.integer("axis"), y.shape.rank());
  copy_elements(call.inputs[0], y, axis, call.attrs.integer("start"));
}

void concat(const KernelCall& call) {
  const TensorRef& y = call.outputs[0];
  const int axis = axis_of(call.attrs.integer("axis"), y.shape.rank());
  std::int64_t start = 0;
  for (const TensorRef& x : call.inputs) {
    copy_elements(x, y, axis, start);
    start += x.shape[axis];
  }
}

void write_slice(const KernelCall& call) {
  const TensorRef& base = call.inputs[0];
  const TensorRef& piece = call.inputs[1];
  const TensorRef& y = call.outputs[0];
  const int axis = axis_of(call.attrs.integer("axis"), base.shape.rank());
  const std::int64_t position = integer_at(call.inputs[2], {});
  if (position < 0 || position + piece.shape[axis] > base.shape[axis]) {
    fail_usage(
        "write_slice", "position {} leaves no room for {} elements of {} along axis {}; at most {}",
        position, piece.shape[axis], base.shape.str(), axis, base.shape[axis] - piece.shape[axis]);
  }
  if (y.data != base.data) copy_elements(base, y);
  copy_elements(piece, y, axis, position);
}

}  // namespace

void add_movement(KernelTable& table) {
  table.add("copy", copy);
  table.add("assign", assign);
  table.add("offload", assign);
  table.add("reload", copy);
  table.add("pad_slice", pad_slice);
  table.add("concat", concat);
  table.add("write_slice", write_slice);
}

}  // namespace tracestep::reference
