// The packed matrix product, float32 arithmetic on float32, bfloat16 or float16 storage: blocks of
// both operands are rewritten as float32 strips that the micro-kernel reads in one direction
// (Goto and van de Geijn 2008). One element of the result is always summed over k in the same
// order, whatever the blocks are.
#if defined(TRACESTEP_BACKENDS_CPU_GEMM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TRACESTEP_BACKENDS_CPU_GEMM_INL_H
#undef TRACESTEP_BACKENDS_CPU_GEMM_INL_H
#else
#define TRACESTEP_BACKENDS_CPU_GEMM_INL_H
#endif

#include <hwy/cache_control.h>

#include "backends/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tracestep::cpu::HWY_NAMESPACE {

// The register tile: kRows x (2 vectors). All accumulators, two vectors of b and one broadcast
// fit into 16 (AVX2) or 32 (AVX-512) registers.
constexpr std::int64_t kRows = HWY_TARGET == HWY_AVX3 ? 14 : 6;
constexpr std::int64_t kColumns = 2 * kLanes;

// c[kRows, kColumns] (+)= a[k, kRows]ᵀ b[k, kColumns], both packed.
template <bool kAccumulate>
HWY_NOINLINE void micro_kernel(std::int64_t k, const float* HWY_RESTRICT a,
                               const float* HWY_RESTRICT b, float* HWY_RESTRICT c,
                               std::int64_t ldc) {
  const D d;
  hn::Vec<D> acc[kRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    acc[r][0] = hn::Zero(d);
    acc[r][1] = hn::Zero(d);
    hwy::Prefetch(c + r * ldc);
  }
  for (std::int64_t i = 0; i < k; ++i) {
    const auto b0 = hn::Load(d, b);
    const auto b1 = hn::Load(d, b + kLanes);
    hwy::Prefetch(b + 8 * kColumns);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const auto x = hn::Set(d, a[r]);
      acc[r][0] = hn::MulAdd(x, b0, acc[r][0]);
      acc[r][1] = hn::MulAdd(x, b1, acc[r][1]);
    }
    a += kRows;
    b += kColumns;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    float* row = c + r * ldc;
    if constexpr (kAccumulate) {
      acc[r][0] = hn::Add(hn::LoadU(d, row), acc[r][0]);
      acc[r][1] = hn::Add(hn::LoadU(d, row + kLanes), acc[r][1]);
    }
    hn::StoreU(acc[r][0], d, row);
    hn::StoreU(acc[r][1], d, row + kLanes);
  }
}

HWY_INLINE void micro_kernel(bool accumulate, std::int64_t k, const float* a, const float* b,
                             float* c, std::int64_t ldc) {
  if (accumulate) {
    micro_kernel<true>(k, a, b, c, ldc);
  } else {
    micro_kernel<false>(k, a, b, c, ldc);
  }
}

#if HWY_TARGET != HWY_SCALAR
using Quad = hn::FixedTag<float, 4>;

HWY_INLINE hn::Vec<Quad> load_quad(const float* p) {
  return hn::LoadU(Quad(), p);
}
HWY_INLINE hn::Vec<Quad> load_quad(const BF16* p) {
  const hn::FixedTag<std::uint16_t, 4> d16;
  const hn::FixedTag<std::uint32_t, 4> d32;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p));
  return hn::BitCast(Quad(), hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}
HWY_INLINE hn::Vec<Quad> load_quad(const F16* p) {
  const hn::FixedTag<hwy::float16_t, 4> d16;
  return hn::PromoteTo(Quad(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
}

// dst[i * width + j] = src[j * stride + i] for a 4x4 square.
template <class T>
HWY_INLINE void transpose_quad(const T* src, std::int64_t stride, float* dst, std::int64_t width) {
  const Quad d;
  const hn::Repartition<std::uint64_t, Quad> d64;
  const auto r0 = load_quad(src), r1 = load_quad(src + stride);
  const auto r2 = load_quad(src + 2 * stride), r3 = load_quad(src + 3 * stride);
  const auto l01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
  const auto l23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
  const auto u01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
  const auto u23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, l01, l23)), d, dst);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, l01, l23)), d, dst + width);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, u01, u23)), d, dst + 2 * width);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, u01, u23)), d, dst + 3 * width);
}
#endif

// One strip: dst[i * kWidth + j] = src[j * stride_j + i * stride_i] for i < k, j < width, zero for
// width <= j < kWidth. One of the strides is 1.
template <std::int64_t kWidth, class T>
HWY_INLINE void pack_strip(const T* src, std::int64_t stride_j, std::int64_t stride_i,
                           std::int64_t width, std::int64_t k, float* dst) {
  if (width == kWidth && stride_j == 1) {
    for (std::int64_t i = 0; i < k; ++i, src += stride_i, dst += kWidth) {
      std::int64_t j = 0;
      for (; j + kLanes <= kWidth; j += kLanes) store(load(src + j), dst + j);
#pragma GCC unroll 16
      for (; j < kWidth; ++j) dst[j] = widen(src[j]);
    }
    return;
  }
#if HWY_TARGET != HWY_SCALAR
  if (width == kWidth && stride_i == 1) {
    const std::int64_t whole = k / 4 * 4;
    // All rows of one cache line's worth of columns before the next ones.
    for (std::int64_t i = 0; i < whole; i += 4) {
      std::int64_t j = 0;
      for (; j + 4 <= kWidth; j += 4) {
        transpose_quad(src + j * stride_j + i, stride_j, dst + i * kWidth + j, kWidth);
      }
      for (; j < kWidth; ++j) {
        for (std::int64_t s = 0; s < 4; ++s) {
          dst[(i + s) * kWidth + j] = widen(src[j * stride_j + i + s]);
        }
      }
    }
    for (std::int64_t i = whole; i < k; ++i) {
      for (std::int64_t j = 0; j < kWidth; ++j) dst[i * kWidth + j] = widen(src[j * stride_j + i]);
    }
    return;
  }
#endif
  for (std::int64_t i = 0; i < k; ++i) {
    for (std::int64_t j = 0; j < kWidth; ++j) {
      dst[i * kWidth + j] = j < width ? widen(src[j * stride_j + i * stride_i]) : 0.0f;
    }
  }
}

template <std::int64_t kWidth, class T>
HWY_NOINLINE void pack(const T* src, std::int64_t stride_j, std::int64_t stride_i,
                       std::int64_t count, std::int64_t k, float* dst) {
  for (std::int64_t j = 0; j < count; j += kWidth) {
    pack_strip<kWidth>(src + j * stride_j, stride_j, stride_i, std::min(kWidth, count - j), k, dst);
    dst += kWidth * k;
  }
}

// c[m, n] (+)= the product of packed blocks; a strip of b stays in L1 while all of a passes by.
HWY_NOINLINE inline void multiply_packed(bool accumulate, std::int64_t m, std::int64_t n,
                                         std::int64_t k, const float* a, const float* b, float* c,
                                         std::int64_t ldc) {
  for (std::int64_t j = 0; j < n; j += kColumns) {
    const float* a_strip = a;
    for (std::int64_t i = 0; i < m; i += kRows, a_strip += kRows * k) {
      float* out = c + i * ldc + j;
      if (i + kRows <= m && j + kColumns <= n) {
        micro_kernel(accumulate, k, a_strip, b, out, ldc);
        continue;
      }
      alignas(64) float edge[kRows * kColumns];
      micro_kernel<false>(k, a_strip, b, edge, kColumns);
      for (std::int64_t r = 0; r < std::min(kRows, m - i); ++r) {
        for (std::int64_t s = 0; s < std::min(kColumns, n - j); ++s) {
          const float x = edge[r * kColumns + s];
          out[r * ldc + s] = accumulate ? out[r * ldc + s] + x : x;
        }
      }
    }
    b += kColumns * k;
  }
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TRACESTEP_BACKENDS_CPU_GEMM_INL_H
