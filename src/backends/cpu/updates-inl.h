// Helpers of AdamW's kernels: the bits of V, as the functors of stochastic rounding use them, and
// the factors of a call. Included once per SIMD target.
#if defined(TRACESTEP_BACKENDS_CPU_UPDATES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TRACESTEP_BACKENDS_CPU_UPDATES_INL_H
#undef TRACESTEP_BACKENDS_CPU_UPDATES_INL_H
#else
#define TRACESTEP_BACKENDS_CPU_UPDATES_INL_H
#endif

#include "backends/cpu/numbers.h"
#include "backends/cpu/tiles-inl.h"
#include "ops/adamw_groups.h"

HWY_BEFORE_NAMESPACE();
#define TRACESTEP_FUNCTORS_NAMESPACE tracestep::cpu::HWY_NAMESPACE::functors
#include "ops/scalar/stochastic_rounding.h"

namespace tracestep::cpu::HWY_NAMESPACE {

struct U {
  hn::Vec<DU> v;
};
HWY_INLINE U constant(U, std::uint32_t x) {
  return {hn::Set(DU(), x)};
}
HWY_INLINE U bits(V x) {
  return {hn::BitCast(DU(), x.v)};
}
HWY_INLINE V from_bits(U x) {
  return {hn::BitCast(D(), x.v)};
}
HWY_INLINE U operator+(U a, U b) {
  return {hn::Add(a.v, b.v)};
}
HWY_INLINE U operator*(U a, U b) {
  return {hn::Mul(a.v, b.v)};
}
HWY_INLINE U operator^(U a, U b) {
  return {hn::Xor(a.v, b.v)};
}
HWY_INLINE U operator&(U a, U b) {
  return {hn::And(a.v, b.v)};
}
HWY_INLINE U operator>>(U a, int count) {
  return {hn::ShiftRightSame(a.v, count)};
}
HWY_INLINE U operator<<(U a, int count) {
  return {hn::ShiftLeftSame(a.v, count)};
}

struct Factors {
  float decay, step_size, grad_scale, beta1, beta2, eps;
  float count;         // The number of steps, on which stochastic rounding depends.
  bool rounds_weight;  // True: the weight is bfloat16 and is rounded stochastically.
};

// Returns the factor on eps: the second element of step_size, √(1-β2ᵗ), which makes an uncorrected
// root equal to PyTorch's corrected one; 1 if step_size is a single number.
HWY_INLINE float eps_factor(const TensorRef& step_size) {
  if (step_size.shape.rank() == 0) return 1.0f;
  TensorRef second = step_size;
  second.data = second.as<std::byte>() + size_of(second.dtype);
  return scalar_of(second);
}

// Returns the factors of an update. `scale` and `count`: nullptr where the call has none.
HWY_INLINE Factors factors_of(const KernelCall& call, const TensorRef& lr,
                              const TensorRef& step_size, const TensorRef* scale,
                              const TensorRef* count) {
  const Attrs& attrs = call.attrs;
  return {.decay = scalar_of(lr) * static_cast<float>(-attrs.real("weight_decay")) + 1.0f,
          .step_size = scalar_of(step_size),
          .grad_scale = scale != nullptr ? scalar_of(*scale) : 1.0f,
          .beta1 = static_cast<float>(attrs.real("beta1")),
          .beta2 = static_cast<float>(attrs.real("beta2")),
          .eps = static_cast<float>(attrs.real("eps")) * eps_factor(step_size),
          .count = count != nullptr ? scalar_of(*count) : 0.0f,
          .rounds_weight = attrs.flag("rounds_weight")};
}

// True if the step is applied, as it is if the call has no `apply` (nullptr).
HWY_INLINE bool applies(const TensorRef* apply) {
  return apply == nullptr || *apply->as<const std::uint8_t>() != 0;
}

HWY_INLINE auto updated(const Factors& f, V p, V g, V m, V v) {
  return functors::Adamw()(p, g * splat(f.grad_scale), m, v, splat(f.decay), splat(f.step_size),
                           splat(f.beta1), splat(f.beta2), splat(f.eps));
}

HWY_INLINE U noise_of(const Factors& f, V p, V g) {
  return functors::RoundingNoise()(bits(splat(f.count)), bits(p), bits(g));
}

// Rounds the weight at random, by the element's `noise`.
HWY_INLINE V rounded_weight(V p, U noise) {
  return functors::StochasticRound()(p, functors::WeightNoise()(noise));
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TRACESTEP_BACKENDS_CPU_UPDATES_INL_H
