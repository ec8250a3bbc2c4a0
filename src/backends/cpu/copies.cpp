// Movement that copies: elements are moved as raw bits, for any dtype.
#include <cstring>

#include "backends/cpu/kernels.h"
#include "backends/cpu/operand.h"
#include "backends/cpu/plain_chunks.h"

namespace tracestep::cpu {
namespace {

template <class T>
void move_strided(const std::byte* src, std::int64_t stride, std::int64_t n, std::byte* dst) {
  const auto* from = reinterpret_cast<const T*>(src);
  auto* to = reinterpret_cast<T*>(dst);
  for (std::int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
}

void move_run(const std::byte* src, std::int64_t stride, std::int64_t n, std::int64_t bytes,
              std::byte* dst) {
  if (stride == 1) {
    std::memmove(dst, src, static_cast<std::size_t>(n * bytes));
    return;
  }
  switch (bytes) {
    case 1: move_strided<std::uint8_t>(src, stride, n, dst); break;
    case 2: move_strided<std::uint16_t>(src, stride, n, dst); break;
    case 4: move_strided<std::uint32_t>(src, stride, n, dst); break;
    default: move_strided<std::uint64_t>(src, stride, n, dst); break;
  }
}

// Copies elements begin <= i < begin + n of x, in row-major order, to `dst`.
void move_elements(const Operand& x, std::int64_t begin, std::int64_t n, std::byte* dst) {
  for_runs(x, begin, n, [&](const std::byte* src, std::int64_t stride, std::int64_t count) {
    move_run(src, stride, count, x.element_bytes, dst);
    dst += count * x.element_bytes;
  });
}

// Writes x into y from `start` on along `axis`: in a row-major y, x is a series of equal pieces.
void place(const KernelCall& call, const TensorRef& x, const TensorRef& y, int axis,
           std::int64_t start) {
  const std::int64_t count = x.count();
  if (count == 0) return;
  const Operand from(x);
  std::int64_t inner = 1;
  for (int i = axis + 1; i < y.shape.rank(); ++i) inner *= y.shape[i];
  const std::int64_t piece = x.shape[axis] * inner, step = y.shape[axis] * inner;
  for_plain_chunks(call, count, [&](std::int64_t begin, std::int64_t n) {
    while (n > 0) {
      const std::int64_t at = begin / piece, rest = begin % piece;
      const std::int64_t part = std::min(n, piece - rest);
      const std::int64_t offset = at * step + start * inner + rest;
      move_elements(from, begin, part, y.as<std::byte>() + offset * from.element_bytes);
      begin += part;
      n -= part;
    }
  });
}

void copy_to(const KernelCall& call, const TensorRef& x, const TensorRef& y) {
  if (x.data == y.data || y.count() == 0) return;
  const Operand from(x);
  for_plain_chunks(call, y.count(), [&](std::int64_t begin, std::int64_t n) {
    move_elements(from, begin, n, y.as<std::byte>() + begin * from.element_bytes);
  });
}

// Copies x to y as copy_to() does, for a y of any strides.
void copy_to_strided(const KernelCall& call, const TensorRef& x, const TensorRef& y) {
  const Operand from(x), to(y);
  for_plain_chunks(call, y.count(), [&](std::int64_t begin, std::int64_t n) {
    std::int64_t at = begin;
    for_runs(to, begin, n, [&](const std::byte* p, std::int64_t stride, std::int64_t count) {
      auto* dst = y.as<std::byte>() + (p - to.data);
      const std::int64_t together = stride == 1 ? count : 1;
      for (std::int64_t i = 0; i < count; i += together) {
        move_elements(from, at + i, together, dst + i * stride * to.element_bytes);
      }
      at += count;
    });
  });
}

void copy_kernel(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0];
  if (y.count() > 0 && !y.contiguous()) return copy_to_strided(call, x, y);
  copy_to(call, x, y);
}

void assign_kernel(const KernelCall& call) {
  copy_to(call, call.inputs[1], call.outputs[0]);
}

int axis_of(const KernelCall& call) {
  const auto axis = static_cast<int>(call.attrs.integer("axis"));
  return axis < 0 ? axis + call.outputs[0].shape.rank() : axis;
}

void pad_slice_kernel(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0];
  const int axis = axis_of(call);
  const std::int64_t start = call.attrs.integer("start");
  std::int64_t inner = static_cast<std::int64_t>(size_of(y.dtype));
  for (int i = axis + 1; i < y.shape.rank(); ++i) inner *= y.shape[i];
  const std::int64_t step = y.shape[axis] * inner;
  if (step == 0) return;
  const std::int64_t before = start * inner, after = before + x.shape[axis] * inner;
  const std::int64_t outer = y.count() * static_cast<std::int64_t>(size_of(y.dtype)) / step;
  for (std::int64_t o = 0; o < outer; ++o) {
    std::byte* row = y.as<std::byte>() + o * step;
    std::memset(row, 0, static_cast<std::size_t>(before));
    std::memset(row + after, 0, static_cast<std::size_t>(step - after));
  }
  place(call, x, y, axis, start);
}

void concat_kernel(const KernelCall& call) {
  const int axis = axis_of(call);
  std::int64_t start = 0;
  for (const TensorRef& x : call.inputs) {
    place(call, x, call.outputs[0], axis, start);
    start += x.shape[axis];
  }
}

void write_slice_kernel(const KernelCall& call) {
  const TensorRef &piece = call.inputs[1], &y = call.outputs[0];
  const int axis = axis_of(call);
  const std::int64_t position = integer_at(call.inputs[2], 0);
  if (position < 0 || position + piece.shape[axis] > y.shape[axis]) {
    fail_usage("write_slice",
               "position {} leaves no room for {} elements of {} along axis {}; at most {}",
               position, piece.shape[axis], y.shape.str(), axis, y.shape[axis] - piece.shape[axis]);
  }
  copy_to(call, call.inputs[0], y);
  place(call, piece, y, axis, position);
}

}  // namespace

void add_copy_kernels(KernelTable& table) {
  table.add("copy", copy_kernel);
  table.add("assign", assign_kernel);
  table.add("offload", assign_kernel);
  table.add("reload", copy_kernel);
  table.add("pad_slice", pad_slice_kernel);
  table.add("concat", concat_kernel);
  table.add("write_slice", write_slice_kernel);
}

}  // namespace tracestep::cpu
