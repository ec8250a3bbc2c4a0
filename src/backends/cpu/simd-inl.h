// The vector type `V` that the scalar functors compute with, its vocabulary, and conversion of
// stored elements to float32 and back. Included once per SIMD target.
#if defined(TRACESTEP_BACKENDS_CPU_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TRACESTEP_BACKENDS_CPU_SIMD_INL_H
#undef TRACESTEP_BACKENDS_CPU_SIMD_INL_H
#else
#define TRACESTEP_BACKENDS_CPU_SIMD_INL_H
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backends/cpu/targets.h"

#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include "base/dtype.h"
#include "base/half.h"

HWY_BEFORE_NAMESPACE();
#define TRACESTEP_FUNCTORS_NAMESPACE tracestep::cpu::HWY_NAMESPACE::functors
#include "ops/scalar/functors.h"

namespace tracestep::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<D>;
using DU = hn::RebindToUnsigned<D>;

// How many float32 lanes a vector has; a constant, as no scalable target is compiled.
constexpr std::int64_t kLanes = static_cast<std::int64_t>(HWY_LANES(float));

struct V {
  hn::Vec<D> v;
};
struct M {
  hn::Mask<D> m;
};

HWY_INLINE V splat(float x) {
  return {hn::Set(D(), x)};
}
HWY_INLINE V load(const float* p) {
  return {hn::LoadU(D(), p)};
}
HWY_INLINE void store(V x, float* p) {
  hn::StoreU(x.v, D(), p);
}

HWY_INLINE V constant(V, float x) {
  return splat(x);
}
HWY_INLINE V operator+(V a, V b) {
  return {hn::Add(a.v, b.v)};
}
HWY_INLINE V operator-(V a, V b) {
  return {hn::Sub(a.v, b.v)};
}
HWY_INLINE V operator*(V a, V b) {
  return {hn::Mul(a.v, b.v)};
}
HWY_INLINE V operator/(V a, V b) {
  return {hn::Div(a.v, b.v)};
}
HWY_INLINE V abs(V a) {
  return {hn::Abs(a.v)};
}
HWY_INLINE V sqrt(V a) {
  return {hn::Sqrt(a.v)};
}
HWY_INLINE V rsqrt(V a) {
  return splat(1.0f) / sqrt(a);
}
// Returns the logarithm. The library's takes positive finite numbers only; others get their square
// root (NaN for NaN and negative numbers, infinity for infinity), and zero gets -infinity.
HWY_INLINE V log(V a) {
  const D d;
  const auto zero = hn::Zero(d), infinity = hn::Inf(d);
  const auto elsewhere = hn::IfThenElse(hn::Eq(a.v, zero), hn::Neg(infinity), hn::Sqrt(a.v));
  const auto usual = hn::And(hn::Gt(a.v, zero), hn::Lt(a.v, infinity));
  return {hn::IfThenElse(usual, hn::Log(d, a.v), elsewhere)};
}
HWY_INLINE M less(V a, V b) {
  return {hn::Lt(a.v, b.v)};
}
HWY_INLINE M less_equal(V a, V b) {
  return {hn::Le(a.v, b.v)};
}
HWY_INLINE M equal(V a, V b) {
  return {hn::Eq(a.v, b.v)};
}
HWY_INLINE V select(M m, V a, V b) {
  return {hn::IfThenElse(m.m, a.v, b.v)};
}
// Returns the larger one. A NaN on either side wins, as in most array libraries.
HWY_INLINE V max(V a, V b) {
  return {hn::IfThenElse(hn::IsNaN(b.v), b.v, hn::IfThenElse(hn::Lt(a.v, b.v), b.v, a.v))};
}
HWY_INLINE V min(V a, V b) {
  return {hn::IfThenElse(hn::IsNaN(b.v), b.v, hn::IfThenElse(hn::Lt(b.v, a.v), b.v, a.v))};
}

HWY_INLINE V multiply_subtract(V a, V b, V c) {  // a b - c, rounded once
  return {hn::MulSub(a.v, b.v, c.v)};
}

// Returns e^x within 1e-7, zero below e^-87: x = n·ln2 + r, and twice a polynomial of degree 6 in r
// (relative error 1.1e-8) times 2^(n-1), which exists for every n that a finite result needs and is
// zero for the least. Adding 1.5·2^23 rounds to an integer and leaves it in the low bits of the
// sum.
HWY_INLINE V exp(V x) {
  const D d;
  const DU du;
  // The second of two where one is NaN.
  const auto bounded = hn::Min(hn::Set(d, 89.0f), hn::Max(hn::Set(d, -87.5f), x.v));
  const auto shifter = hn::Set(d, 0x1.8p23f);
  const auto shifted = hn::MulAdd(bounded, hn::Set(d, 0x1.715476p+0f), shifter);
  const auto n = hn::Sub(shifted, shifter);
  auto r = hn::NegMulAdd(n, hn::Set(d, 0x1.62e4p-1f), bounded);
  r = hn::NegMulAdd(n, hn::Set(d, 0x1.7f7d1cp-20f), r);
  auto q = hn::MulAdd(hn::Set(d, 0x1.6d113cp-9f), r, hn::Set(d, 0x1.120ba2p-6f));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.55551ap-4f));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.5554dcp-2f));
  q = hn::MulAdd(q, r, hn::Set(d, 1.0f));
  q = hn::MulAdd(q, r, hn::Set(d, 2.0f));
  q = hn::MulAdd(q, r, hn::Set(d, 2.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(du, shifted));
  const auto power = hn::BitCast(d, hn::Add(exponent, hn::Set(du, 126u << 23)));
  return {hn::Mul(q, power)};
}

// Returns 1 + e^-x within 1e-7 for |x| <= 5, 2e-8 |x| beyond: computed as exp() is, to base two,
// but without the low part of log 2, and with the addition in place of the last multiplication.
HWY_INLINE V one_plus_exp_of_minus(V x) {
  const D d;
  const DU du;
  const auto bounded = hn::Min(hn::Set(d, 87.5f), hn::Max(hn::Set(d, -89.0f), x.v));
  const auto log2e = hn::Set(d, 0x1.715476p+0f);
  const auto shifter = hn::Set(d, 0x1.8p23f);
  const auto shifted = hn::NegMulAdd(bounded, log2e, shifter);
  const auto n = hn::Sub(shifted, shifter);
  const auto r = hn::NegMulSub(bounded, log2e, n);
  auto q = hn::MulAdd(hn::Set(d, 0x1.41fbbep-12f), r, hn::Set(d, 0x1.5f3e54p-9f));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.3b2d4cp-6f));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.c6aee8p-4f));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.ebfbdcp-2f));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.62e430p+0f));
  q = hn::MulAdd(q, r, hn::Set(d, 2.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(du, shifted));
  const auto power = hn::BitCast(d, hn::Add(exponent, hn::Set(du, 126u << 23)));
  return {hn::MulAdd(q, power, hn::Set(d, 1.0f))};
}

// --- partial vectors: the same arithmetic on a padded copy ------------------------------------

HWY_INLINE V load_n(const float* p, std::int64_t n, float padding = 1.0f) {
  alignas(64) float lanes[kLanes];
  for (std::int64_t i = 0; i < kLanes; ++i) lanes[i] = i < n ? p[i] : padding;
  return {hn::Load(D(), lanes)};
}
HWY_INLINE void store_n(V x, float* p, std::int64_t n) {
  alignas(64) float lanes[kLanes];
  hn::Store(x.v, D(), lanes);
  for (std::int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}

// Sets y[i] = f(a[i], …) for 0 <= i < n; y may be one of the operands.
template <class F, class... In>
HWY_INLINE void map(F f, std::int64_t n, float* y, const In*... in) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(f(load(in + i)...), y + i);
  if (i < n) store_n(f(load_n(in + i, n - i)...), y + i, n - i);
}

// --- sums: four vectors of partial sums, then their lanes, always in this order ----------------

// Returns Σ f(a[i], …), with f giving a V; n is small (a tile): the error is of n/(4·lanes) sums.
template <class F, class... In>
HWY_INLINE float sum_of(F f, std::int64_t n, const In*... in) {
  V s0 = splat(0.0f), s1 = s0, s2 = s0, s3 = s0;
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    s0 = s0 + f(load(in + i)...);
    s1 = s1 + f(load(in + i + kLanes)...);
    s2 = s2 + f(load(in + i + 2 * kLanes)...);
    s3 = s3 + f(load(in + i + 3 * kLanes)...);
  }
  for (; i + kLanes <= n; i += kLanes) s0 = s0 + f(load(in + i)...);
  if (i < n) {
    const V last = f(load_n(in + i, n - i)...);
    alignas(64) float lanes[kLanes];
    hn::Store(last.v, D(), lanes);
    for (std::int64_t k = n - i; k < kLanes; ++k) lanes[k] = 0.0f;
    s1 = s1 + load(lanes);
  }
  const V total = (s0 + s1) + (s2 + s3);
  return hn::GetLane(hn::SumOfLanes(D(), total.v));
}

// Stores the values of f to y as map() does, and returns their sum as sum_of() does.
template <class F, class... In>
HWY_INLINE float map_and_sum(F f, std::int64_t n, float* y, const In*... in) {
  V s0 = splat(0.0f), s1 = s0, s2 = s0, s3 = s0;
  std::int64_t i = 0;
  const auto step = [&](std::int64_t at) HWY_ATTR {
    const V v = f(load(in + at)...);
    store(v, y + at);
    return v;
  };
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    s0 = s0 + step(i);
    s1 = s1 + step(i + kLanes);
    s2 = s2 + step(i + 2 * kLanes);
    s3 = s3 + step(i + 3 * kLanes);
  }
  for (; i + kLanes <= n; i += kLanes) s0 = s0 + step(i);
  const V total = (s0 + s1) + (s2 + s3);
  float sum = hn::GetLane(hn::SumOfLanes(D(), total.v));
  if (i < n) {
    store_n(f(load_n(in + i, n - i)...), y + i, n - i);
    for (; i < n; ++i) sum += y[i];
  }
  return sum;
}

HWY_INLINE float max_of(std::int64_t n, const float* a, float start) {
  const D d;
  auto m0 = hn::Set(d, start), m1 = m0;
  auto ordered = hn::Eq(m0, m0);  // false in a lane that has seen a NaN
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const auto x0 = load(a + i).v, x1 = load(a + i + kLanes).v;
    m0 = hn::Max(m0, x0);
    m1 = hn::Max(m1, x1);
    ordered = hn::And(ordered, hn::And(hn::Eq(x0, x0), hn::Eq(x1, x1)));
  }
  for (; i < n; i += kLanes) {
    const auto x = (i + kLanes <= n ? load(a + i) : load_n(a + i, n - i, start)).v;
    m0 = hn::Max(m0, x);
    ordered = hn::And(ordered, hn::Eq(x, x));
  }
  if (!hn::AllTrue(d, ordered)) return __builtin_nanf("");
  alignas(64) float lanes[kLanes];
  hn::Store(hn::Max(m0, m1), d, lanes);
  float top = lanes[0];
  for (std::int64_t k = 1; k < kLanes; ++k) top = std::max(top, lanes[k]);
  return top;
}

// --- stored elements to float32 and back -------------------------------------------------------

HWY_INLINE V load(const BF16* p) {
  const hn::Rebind<std::uint16_t, D> d16;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p));
  return {hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(DU(), bits)))};
}
HWY_INLINE void store(V x, BF16* p) {
  const DU du;
  const hn::Rebind<std::uint16_t, D> d16;
  const auto u = hn::BitCast(du, x.v);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(u, hn::Add(odd, hn::Set(du, 0x7fff))));
  const auto nan = hn::Or(hn::ShiftRight<16>(u), hn::Set(du, 0x40));
  const auto is_nan = hn::RebindMask(du, hn::Ne(x.v, x.v));
  const auto bits = hn::IfThenElse(is_nan, nan, rounded);
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(DI(), bits)), d16, reinterpret_cast<std::uint16_t*>(p));
}
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE V load(const F16* p) {
  return splat(to_float(*p));
}
HWY_INLINE void store(V x, F16* p) {
  *p = to_f16(hn::GetLane(x.v));
}
#else
HWY_INLINE V load(const F16* p) {
  const hn::Rebind<hwy::float16_t, D> d16;
  return {hn::PromoteTo(D(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)))};
}
HWY_INLINE void store(V x, F16* p) {
  const hn::Rebind<hwy::float16_t, D> d16;
  hn::StoreU(hn::DemoteTo(d16, x.v), d16, reinterpret_cast<hwy::float16_t*>(p));
}
#endif

HWY_INLINE float widen(float x) {
  return x;
}
HWY_INLINE float widen(BF16 x) {
  return to_float(x);
}
HWY_INLINE float widen(F16 x) {
  return to_float(x);
}
HWY_INLINE void narrow(float x, float* p) {
  *p = x;
}
HWY_INLINE void narrow(float x, BF16* p) {
  *p = to_bf16(x);
}
HWY_INLINE void narrow(float x, F16* p) {
  *p = to_f16(x);
}

template <class T>
HWY_INLINE void widen_run(const T* src, std::int64_t stride, std::int64_t n, float* dst) {
  if (stride == 1) {
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(load(src + i), dst + i);
    for (; i < n; ++i) dst[i] = widen(src[i]);
  } else if (stride == 0) {
    std::fill(dst, dst + n, widen(*src));
  } else {
    for (std::int64_t i = 0; i < n; ++i) dst[i] = widen(src[i * stride]);
  }
}

HWY_INLINE void to_floats(const void* src, DType dtype, std::int64_t stride, std::int64_t n,
                          float* dst) {
  switch (dtype) {
    case DType::kBF16: widen_run(static_cast<const BF16*>(src), stride, n, dst); break;
    case DType::kF16: widen_run(static_cast<const F16*>(src), stride, n, dst); break;
    default: widen_run(static_cast<const float*>(src), stride, n, dst); break;
  }
}

template <class T>
HWY_INLINE void narrow_run(const float* src, std::int64_t n, T* dst) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(load(src + i), dst + i);
  for (; i < n; ++i) narrow(src[i], dst + i);
}

HWY_INLINE void from_floats(const float* src, std::int64_t n, DType dtype, void* dst) {
  switch (dtype) {
    case DType::kBF16: narrow_run(src, n, static_cast<BF16*>(dst)); break;
    case DType::kF16: narrow_run(src, n, static_cast<F16*>(dst)); break;
    default: std::memcpy(dst, src, static_cast<std::size_t>(n) * sizeof(float)); break;
  }
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TRACESTEP_BACKENDS_CPU_SIMD_INL_H
