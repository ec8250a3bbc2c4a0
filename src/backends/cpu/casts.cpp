// cast and select: values of any dtype.
#include <algorithm>

#include "backends/cpu/kernels.h"
#include "backends/cpu/numbers.h"
#include "backends/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/casts.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "backends/cpu/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tracestep::cpu::HWY_NAMESPACE {
namespace {

// Reads elements begin <= i < begin + n as 64-bit integers.
void read_integers(const Operand& x, std::int64_t begin, std::int64_t n, std::int64_t* dst) {
  for_runs(x, begin, n, [&](const std::byte* p, std::int64_t stride, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      switch (x.dtype) {
        case DType::kI64: *dst++ = reinterpret_cast<const std::int64_t*>(p)[i * stride]; break;
        case DType::kI32: *dst++ = reinterpret_cast<const std::int32_t*>(p)[i * stride]; break;
        default: *dst++ = reinterpret_cast<const std::uint8_t*>(p)[i * stride]; break;
      }
    }
  });
}

// Reads 8-bit floating elements begin <= i < begin + n as float32.
template <class F8>
void read_float8(const Operand& x, std::int64_t begin, std::int64_t n, float* dst) {
  for_runs(x, begin, n, [&](const std::byte* p, std::int64_t stride, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      *dst++ = to_float(reinterpret_cast<const F8*>(p)[i * stride]);
    }
  });
}

const float* read_floats(const Operand& x, std::int64_t begin, std::int64_t n, Tile& tile) {
  switch (x.dtype) {
    case DType::kF8E4M3: read_float8<F8E4M3>(x, begin, n, tile.data); return tile.data;
    case DType::kF8E5M2: read_float8<F8E5M2>(x, begin, n, tile.data); return tile.data;
    default: return read(x, begin, n, tile);
  }
}

void cast_kernel(const KernelCall& call) {
  const Operand x(call.inputs[0]);
  const TensorRef& y = call.outputs[0];
  const bool from_real = is_floating(x.dtype),
             to_real = is_floating(y.dtype) && !is_float8(y.dtype);
  for_tiles(call, y.count(), [&](std::int64_t begin, std::int64_t n) {
    if (!from_real) {
      std::int64_t values[kTile];
      read_integers(x, begin, n, values);
      for (std::int64_t i = 0; i < n; ++i) put_number(y.data, y.dtype, begin + i, values[i]);
      return;
    }
    Tile tile;
    const float* values = read_floats(x, begin, n, tile);
    if (to_real) {
      from_floats(values, n, y.dtype,
                  y.as<std::byte>() + begin * static_cast<std::int64_t>(size_of(y.dtype)));
      return;
    }
    for (std::int64_t i = 0; i < n; ++i) put_number(y.data, y.dtype, begin + i, values[i]);
  });
}

// Computes `select` on raw bits, so that all dtypes of the size of T share the code.
template <class T>
void select_bits(const KernelCall& call) {
  const Operand condition(call.inputs[0]), a(call.inputs[1]), b(call.inputs[2]);
  const TensorRef& y = call.outputs[0];
  const auto gather = []<class U>(const Operand& x, std::int64_t begin, std::int64_t n,
                                  U* buffer) -> const U* {
    if (x.is_dense) return reinterpret_cast<const U*>(x.data) + begin;
    U* dst = buffer;
    for_runs(x, begin, n, [&](const std::byte* p, std::int64_t stride, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        *dst++ = reinterpret_cast<const U*>(p)[i * stride];
      }
    });
    return buffer;
  };
  // Updates have one condition for all elements: y is then a copy, or untouched if done in place.
  const bool is_single = condition.walk.shape.rank() == 1 && condition.walk.inner_stride() == 0;
  const Operand& chosen = y.count() > 0 && *condition.data != std::byte{0} ? a : b;
  for_tiles(call, y.count(), [&](std::int64_t begin, std::int64_t n) {
    if (is_single) {
      T* out = y.as<T>() + begin;
      const T* values = gather(chosen, begin, n, out);
      if (values != out) std::copy_n(values, n, out);
      return;
    }
    std::uint8_t c_buffer[kTile];
    T a_buffer[kTile], b_buffer[kTile];
    const std::uint8_t* c = gather(condition, begin, n, c_buffer);
    const T* av = gather(a, begin, n, a_buffer);
    const T* bv = gather(b, begin, n, b_buffer);
    T* out = y.as<T>() + begin;
    for (std::int64_t i = 0; i < n; ++i) out[i] = c[i] != 0 ? av[i] : bv[i];
  });
}

void select_kernel(const KernelCall& call) {
  switch (size_of(call.outputs[0].dtype)) {
    case 1: select_bits<std::uint8_t>(call); break;
    case 2: select_bits<std::uint16_t>(call); break;
    case 4: select_bits<std::uint32_t>(call); break;
    default: select_bits<std::uint64_t>(call); break;
  }
}

constexpr NamedKernel kCasts[] = {{"cast", cast_kernel}, {"select", select_kernel}};

}  // namespace

std::span<const NamedKernel> cast_kernels() {
  return kCasts;
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tracestep::cpu {

HWY_EXPORT(cast_kernels);

void add_cast_kernels(KernelTable& table) {
  for (const NamedKernel& k : HWY_DYNAMIC_DISPATCH(cast_kernels)()) table.add(k.op, k.kernel);
}

}  // namespace tracestep::cpu
#endif
