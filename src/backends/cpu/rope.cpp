// Rotary position embedding: rotates interleaved pairs of every row by the angles of its position.
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

// y = x rotated; n pairs. x and y may be the same.
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

void rope_kernel(const KernelCall& call) {
  const Operand x(call.inputs[0]), cos(call.inputs[1]), sin(call.inputs[2]);
  const TensorRef& y = call.outputs[0];
  const std::int64_t width = y.shape.back(), length = y.shape.back(1), half = width / 2;
  if (y.count() == 0) return;
  const float sign = call.attrs.flag("inverse") ? -1.0f : 1.0f;
  for_rows(call, y.count() / width, width, [&](std::int64_t row) {
    const std::int64_t angles = row % length * half;
    for (std::int64_t j = 0; j < half; j += kTile / 2) {
      const std::int64_t n = std::min(kTile / 2, half - j), at = row * width + 2 * j;
      Tile x_tile, cos_tile, sin_tile, y_tile;
      rotate(n, read(x, at, 2 * n, x_tile), read(cos, angles + j, n, cos_tile),
             read(sin, angles + j, n, sin_tile), sign, destination(y, at, y_tile));
      finish(y, at, 2 * n, y_tile);
    }
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
