// Rotary position embedding: rotates pairs of every row, neighbours or half a row apart, by the
// angles of its position.
#include "backends/cpu/kernels.h"
#include "backends/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/rope.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "backends/cpu/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tracestep::cpu::HWY_NAMESPACE {
namespace {

// Rotates n pairs of x into y, which may be x itself.
HWY_INLINE void rotate(std::int64_t n, const float* x, const float* cos, const float* sin,
                       float sign, float* y) {
  const D d;
  std::int64_t i = 0;
  const auto turn = [&](const float* in, const float* c, const float* s, float* out) HWY_ATTR {
    hn::Vec<D> a, b;
    hn::LoadInterleaved2(d, in, a, b);
    const V first{a}, second{b}, cosine = load(c), sine = load(s) * splat(sign);
    hn::StoreInterleaved2((first * cosine - second * sine).v, (first * sine + second * cosine).v, d,
                          out);
  };
  for (; i + kLanes <= n; i += kLanes) turn(x + 2 * i, cos + i, sin + i, y + 2 * i);
  if (i == n) return;
  float in[2 * kLanes] = {}, c[kLanes] = {}, s[kLanes] = {}, out[2 * kLanes];
  std::copy(x + 2 * i, x + 2 * n, in);
  std::copy(cos + i, cos + n, c);
  std::copy(sin + i, sin + n, s);
  turn(in, c, s, out);
  std::copy(out, out + 2 * (n - i), y + 2 * i);
}

// Rotates n pairs that lie apart, (a[i], b[i]), into (y[i], z[i]).
HWY_INLINE void rotate_apart(std::int64_t n, const float* a, const float* b, const float* cos,
                             const float* sin, float sign, float* y, float* z) {
  const V turn = splat(sign);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const V first = load(a + i), second = load(b + i), c = load(cos + i), s = load(sin + i) * turn;
    store(first * c - second * s, y + i);
    store(first * s + second * c, z + i);
  }
  for (; i < n; ++i) {
    const float first = a[i], second = b[i], s = sin[i] * sign;
    y[i] = first * cos[i] - second * s;
    z[i] = first * s + second * cos[i];
  }
}

void rope_kernel(const KernelCall& call) {
  const Operand x(call.inputs[0]), cos(call.inputs[1]), sin(call.inputs[2]);
  const TensorRef& y = call.outputs[0];
  const std::int64_t width = y.shape.back(), length = y.shape.back(1), half = width / 2;
  if (y.count() == 0) return;
  const float sign = call.attrs.flag("inverse") ? -1.0f : 1.0f;
  const bool by_halves = call.attrs.flag("halves");
  const auto read_x = [&](const std::byte* from, std::int64_t stride, std::int64_t n, Tile& tile) {
    if (x.dtype == DType::kF32 && stride == 1) return reinterpret_cast<const float*>(from);
    to_floats(from, x.dtype, stride, n, tile.data);
    return static_cast<const float*>(tile.data);
  };
  const auto rotate_halves = [&](std::int64_t row, const std::byte* from, std::int64_t stride) {
    const std::int64_t angles = row % length * half;
    for (std::int64_t j = 0; j < half; j += kTile) {
      const std::int64_t n = std::min(kTile, half - j), at = row * width + j;
      const std::byte* piece = from + j * stride * x.element_bytes;
      Tile a, b, cos_tile, sin_tile, y_tile, z_tile;
      rotate_apart(n, read_x(piece, stride, n, a),
                   read_x(piece + half * stride * x.element_bytes, stride, n, b),
                   read(cos, angles + j, n, cos_tile), read(sin, angles + j, n, sin_tile), sign,
                   destination(y, at, y_tile), destination(y, at + half, z_tile));
      finish(y, at, n, y_tile);
      finish(y, at + half, n, z_tile);
    }
  };
  // `from`: the row's first element, its neighbours `stride` apart.
  const auto rotate_row = [&](std::int64_t row, const std::byte* from, std::int64_t stride) {
    const std::int64_t angles = row % length * half;
    for (std::int64_t j = 0; j < half; j += kTile / 2) {
      const std::int64_t n = std::min(kTile / 2, half - j), at = row * width + 2 * j;
      const std::byte* piece = from + 2 * j * stride * x.element_bytes;
      Tile x_tile, cos_tile, sin_tile, y_tile;
      rotate(n, read_x(piece, stride, 2 * n, x_tile), read(cos, angles + j, n, cos_tile),
             read(sin, angles + j, n, sin_tile), sign, destination(y, at, y_tile));
      finish(y, at, 2 * n, y_tile);
    }
  };
  const std::int64_t rows = y.count() / width;
  const std::int64_t per_chunk = std::max<std::int64_t>(1, kChunk / width);
  for_chunks(call, ceil_div(rows, per_chunk), [&](std::int64_t chunk, int) {
    std::int64_t row = chunk * per_chunk;
    const std::int64_t count = std::min(rows - row, per_chunk);
    for_runs(x, row * width, count * width,  // each run is a number of whole rows
             [&](const std::byte* from, std::int64_t stride, std::int64_t elements) {
               for (std::int64_t i = 0; i < elements; i += width, ++row) {
                 const std::byte* at = from + i * stride * x.element_bytes;
                 by_halves ? rotate_halves(row, at, stride) : rotate_row(row, at, stride);
               }
             });
  });
}

constexpr NamedKernel kRope[] = {{"rope", rope_kernel}};

}  // namespace

std::span<const NamedKernel> rope_kernels() {
  return kRope;
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tracestep::cpu {

HWY_EXPORT(rope_kernels);

void add_rope_kernels(KernelTable& table) {
  for (const NamedKernel& k : HWY_DYNAMIC_DISPATCH(rope_kernels)()) table.add(k.op, k.kernel);
}

}  // namespace tracestep::cpu
#endif
