// Movement that copies: elements are moved as raw bits, for any dtype.
#include "backends/cuda/kernels.h"
#include "backends/cuda/maps/strided_copy.h"
#include "ops/collective_sizes.h"
#include "runtime/communicator.h"

namespace tracestep::cuda {
namespace {

int axis_of(const KernelCall& call) {
  const auto axis = static_cast<int>(call.attrs.integer("axis"));
  return axis < 0 ? axis + call.outputs[0].shape.rank() : axis;
}

// Returns a view of the entries [start, start + extent) along `axis`.
TensorRef part_of(const TensorRef& whole, int axis, std::int64_t start, std::int64_t extent) {
  TensorRef part = whole;
  part.shape[axis] = extent;
  part.data = whole.as<std::byte>() +
              start * whole.strides[axis] * static_cast<std::int64_t>(size_of(whole.dtype));
  return part;
}

void copy_to(const KernelCall& call, const TensorRef& x, const TensorRef& y) {
  if (x.data != y.data) place(call, x, y);
}

void copy(const KernelCall& call) {
  copy_to(call, call.inputs[0], call.outputs[0]);
}

void assign(const KernelCall& call) {
  copy_to(call, call.inputs[1], call.outputs[0]);
}

// Copies between memories by a copy engine, so that multiprocessors do not wait for the
// bus.
void move(const KernelCall& call, const TensorRef& x, const TensorRef& y) {
  const std::size_t bytes = static_cast<std::size_t>(y.count()) * size_of(y.dtype);
  if (bytes == 0 || x.data == y.data) return;
  const cudaError_t status =
      cudaMemcpyAsync(y.data, x.data, bytes, cudaMemcpyDefault, stream_of(call).handle);
  if (status != cudaSuccess) fail_launch(call, status);
}

void offload(const KernelCall& call) {
  move(call, call.inputs[1], call.outputs[0]);
}

void reload(const KernelCall& call) {
  move(call, call.inputs[0], call.outputs[0]);
}

void pad_slice(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0];
  const int axis = axis_of(call);
  const std::int64_t start = call.attrs.integer("start");
  const std::int64_t end = start + x.shape[axis];
  clear(call, part_of(y, axis, 0, start));
  clear(call, part_of(y, axis, end, y.shape[axis] - end));
  place(call, x, part_of(y, axis, start, x.shape[axis]));
}

void concat(const KernelCall& call) {
  const int axis = axis_of(call);
  std::int64_t start = 0;
  for (const TensorRef& x : call.inputs) {
    place(call, x, part_of(call.outputs[0], axis, start, x.shape[axis]));
    start += x.shape[axis];
  }
}

void write_slice(const KernelCall& call) {
  const TensorRef &piece = call.inputs[1], &position = call.inputs[2], &y = call.outputs[0];
  const int axis = axis_of(call);
  copy_to(call, call.inputs[0], y);
  place(call, piece, part_of(y, axis, 0, piece.shape[axis]),
        {.data = position.data,
         .dtype = position.dtype,
         .step = y.strides[axis],
         .most = y.shape[axis] - piece.shape[axis],
         .faults = faults_of(call)});
}

void own_part(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &part = call.outputs[0];
  const RankGroup group = group_of(call.attrs);
  const OwnPart own = own_part_of(x.count(), group.ranks, group.index_of(call.group->rank()));
  const auto elements = [](const TensorRef& of, std::int64_t first, std::int64_t count) {
    return part_of({.data = of.data, .dtype = of.dtype, .shape = {count}, .strides = {1}}, 0, first,
                   count);
  };
  if (own.count > 0) place(call, elements(x, own.first, own.count), elements(part, 0, own.count));
  if (own.count < part.count()) {
    clear(call, elements(part, own.count, part.count() - own.count));
  }
}

}  // namespace

void add_copy_kernels(KernelTable& table) {
  table.add("copy", copy);
  table.add("assign", assign);
  table.add("offload", offload);
  table.add("reload", reload);
  table.add("pad_slice", pad_slice);
  table.add("concat", concat);
  table.add("write_slice", write_slice);
  table.add("own_part", own_part);
}

}  // namespace tracestep::cuda
