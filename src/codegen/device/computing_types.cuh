// The computing types of device code: the vocabulary of ops/scalar/functors.h on float32. Includes
// nothing, since kernels generated at run time are compiled with this text too.
#pragma once

namespace tracestep::cuda {

// A float32 as a type of this namespace, so that functors, which call exp, max and the others
// unqualified, find those below. kRough: exp, quotients and square roots may be off by a relative
// 2^-20, which is negligible in a result that is rounded to 16 bits.
template <bool kRough>
struct Number {
  float v;
};
using Real = Number<false>;
using Rough = Number<true>;

template <bool r>
__device__ inline Number<r> operator+(Number<r> a, Number<r> b) {
  return {a.v + b.v};
}
template <bool r>
__device__ inline Number<r> operator-(Number<r> a, Number<r> b) {
  return {a.v - b.v};
}
template <bool r>
__device__ inline Number<r> operator*(Number<r> a, Number<r> b) {
  return {a.v * b.v};
}
__device__ inline Real operator/(Real a, Real b) {
  return {a.v / b.v};
}
__device__ inline Rough operator/(Rough a, Rough b) {
  float y;
  asm("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(a.v), "f"(b.v));
  return {y};
}
template <bool r>
__device__ inline Number<r> constant(Number<r>, float x) {
  return {x};
}
__device__ inline Real exp(Real x) {
  return {expf(x.v)};
}
__device__ inline Rough exp(Rough x) {
  float y;  // 2^(x log2 e); a subnormal result becomes 0
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x.v * 1.44269504f));
  return {y};
}
template <bool r>
__device__ inline Number<r> log(Number<r> x) {
  return {logf(x.v)};
}
__device__ inline Real sqrt(Real x) {
  return {sqrtf(x.v)};
}
__device__ inline Rough sqrt(Rough x) {
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x.v));
  return {y};
}
template <bool r>
__device__ inline Number<r> rsqrt(Number<r> x) {
  return {rsqrtf(x.v)};
}
template <bool r>
__device__ inline Number<r> abs(Number<r> x) {
  return {fabsf(x.v)};
}
// Returns the larger number; NaN if either is NaN, as IEEE 754 defines maximum and minimum.
__device__ inline float maximum(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
__device__ inline float minimum(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
template <bool r>
__device__ inline Number<r> max(Number<r> a, Number<r> b) {
  return {maximum(a.v, b.v)};
}
template <bool r>
__device__ inline Number<r> min(Number<r> a, Number<r> b) {
  return {minimum(a.v, b.v)};
}
template <bool r>
__device__ inline bool less(Number<r> a, Number<r> b) {
  return a.v < b.v;
}
template <bool r>
__device__ inline bool less_equal(Number<r> a, Number<r> b) {
  return a.v <= b.v;
}
template <bool r>
__device__ inline bool equal(Number<r> a, Number<r> b) {
  return a.v == b.v;
}
template <bool r>
__device__ inline Number<r> select(bool c, Number<r> a, Number<r> b) {
  return c ? a : b;
}

}  // namespace tracestep::cuda
