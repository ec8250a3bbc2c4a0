// The packed matrix product, float32 arithmetic on float32, bfloat16 or float16 storage: blocks of
// both operands are rewritten as strips that the micro-kernel reads in one direction (Goto and van
// de Geijn 2008): of float32, or of pairs of bfloat16 where the processor multiplies these. One
// element of the result is always summed over k in the same order, for any block sizes.
#if defined(TRACESTEP_BACKENDS_CPU_GEMM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TRACESTEP_BACKENDS_CPU_GEMM_INL_H
#undef TRACESTEP_BACKENDS_CPU_GEMM_INL_H
#else
#define TRACESTEP_BACKENDS_CPU_GEMM_INL_H
#endif

#include <hwy/cache_control.h>

#include "backends/cpu/simd-inl.h"
#include "base/integers.h"

HWY_BEFORE_NAMESPACE();
namespace tracestep::cpu::HWY_NAMESPACE {

// The register tile: kRows x (2 vectors). All accumulators, two vectors of b and one broadcast
// fit into 16 (AVX2) or 32 (AVX-512) registers.
constexpr std::int64_t kRows = HWY_TARGET == HWY_AVX3 ? 14 : 6;
constexpr std::int64_t kColumns = 2 * kLanes;
// Steps of k in one turn of the innermost loops. With six rows a step is 24 instructions for 12
// multiply-adds: on Zen 3 one a turn keeps their units at 78 or 88 % of peak, depending on where
// the loop begins; four at 90, eight at 82. With fourteen rows, on 16 threads, one and two a turn
// keep them at 53 %, four at 59.
constexpr int kUnroll = 4;

// The float32 elements of a cache line; contiguous memory is fetched in steps of this size.
constexpr std::int64_t kLine = 16;

// True if packed rows are prefetched from L2 (two multiply-adds of 16 lanes per cycle need it), so
// many floats ahead. Rows pass through L1 once per strip of columns, which fills most of it.
constexpr bool kFetchesRows = HWY_TARGET == HWY_AVX3;
constexpr std::int64_t kRowsAhead = 32 * kRows;

// Fetches one row of a tile of the result. With AVX-512 a row has two cache lines, which are
// fetched into L2 only: strips fill L1, and rows whose distance is a multiple of a page would drive
// each other out of it.
HWY_INLINE void fetch_row(const float* row) {
  if constexpr (HWY_TARGET == HWY_AVX3) {
    __builtin_prefetch(row, 0, 2);
    __builtin_prefetch(row + kLanes, 0, 2);
  } else {
    hwy::Prefetch(row);
  }
}

// Arithmetic on strips of float32, which have one element of K in each step.
struct Floats {
  static constexpr std::int64_t kPerStep = 1;
  static HWY_INLINE hn::Vec<D> add(hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> sum) {
    return hn::MulAdd(a, b, sum);
  }
};

#if HWY_TARGET == HWY_AVX3
// Arithmetic on strips of pairs of bfloat16, k and k + 1 in the place of a float32 (AVX512-BF16).
// The instruction adds the product of k + 1 and then that of k, each with one rounding, and takes
// subnormal operands and sums for zero.
struct Pairs {
  static constexpr std::int64_t kPerStep = 2;
  static HWY_INLINE hn::Vec<D> add(hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(b.raw), "v"(a.raw));
    return sum;
  }
};
#endif

// Computes a register tile of Σ_k a(r, k) b(k, ·), where a(r, k) stands at r · kStrideR + k ·
// kStrideK and b is a packed strip. The rows c of the result are fetched meanwhile.
template <class Strips, std::int64_t kTile, std::int64_t kStrideR, std::int64_t kStrideK>
HWY_INLINE void multiply_tile(std::int64_t k, const float* HWY_RESTRICT a,
                              const float* HWY_RESTRICT b, const float* c, std::int64_t ldc,
                              hn::Vec<D> (&acc)[kTile][2]) {
  const D d;
#pragma GCC unroll 16
  for (int r = 0; r < kTile; ++r) {
    acc[r][0] = hn::Zero(d);
    acc[r][1] = hn::Zero(d);
    fetch_row(c + r * ldc);
  }
  const auto step = [&](std::int64_t i) HWY_ATTR {
    const auto b0 = hn::Load(d, b + i * kColumns);
    const auto b1 = hn::Load(d, b + i * kColumns + kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kTile; ++r) {
      const auto x = hn::Set(d, a[r * kStrideR + i * kStrideK]);
      acc[r][0] = Strips::add(x, b0, acc[r][0]);
      acc[r][1] = Strips::add(x, b1, acc[r][1]);
    }
  };
  for (; k >= kUnroll; k -= kUnroll) {
    if constexpr (kFetchesRows && kStrideR == 1 && kStrideK == kRows) {
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < kUnroll * kRows; i += kLine) hwy::Prefetch(a + kRowsAhead + i);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kUnroll; ++i) step(i);
    a += kUnroll * kStrideK;
    b += kUnroll * kColumns;
  }
  for (; k > 0; --k) {
    step(0);
    a += kStrideK;
    b += kColumns;
  }
}

// Computes c[kTile, kColumns] (+)= a[k, kRows]ᵀ b[k, kColumns], packed, in k steps; kTile <= kRows.
template <bool kAccumulate, std::int64_t kTile, class Strips = Floats>
HWY_NOINLINE void micro_kernel(std::int64_t k, const float* HWY_RESTRICT a,
                               const float* HWY_RESTRICT b, float* HWY_RESTRICT c,
                               std::int64_t ldc) {
  const D d;
  hn::Vec<D> acc[kTile][2];
  multiply_tile<Strips, kTile, 1, kRows>(k, a, b, c, ldc, acc);
#pragma GCC unroll 16
  for (int r = 0; r < kTile; ++r) {
    float* row = c + r * ldc;
    if constexpr (kAccumulate) {
      acc[r][0] = hn::Add(hn::LoadU(d, row), acc[r][0]);
      acc[r][1] = hn::Add(hn::LoadU(d, row + kLanes), acc[r][1]);
    }
    hn::StoreU(acc[r][0], d, row);
    hn::StoreU(acc[r][1], d, row + kLanes);
  }
}

// Multiplies a tile of kTile rows; a block's last rows take the smallest tile that holds them.
template <class Strips, std::int64_t kTile>
HWY_INLINE void tile_kernel(bool accumulate, std::int64_t k, const float* a, const float* b,
                            float* c, std::int64_t ldc) {
  if (accumulate) {
    micro_kernel<true, kTile, Strips>(k, a, b, c, ldc);
  } else {
    micro_kernel<false, kTile, Strips>(k, a, b, c, ldc);
  }
}
HWY_INLINE std::int64_t tile_rows(std::int64_t rows) {
  return rows <= 4 ? 4 : rows <= 8 && kRows > 8 ? 8 : kRows;
}
template <class Strips>
HWY_INLINE void micro_kernel(std::int64_t tile, bool accumulate, std::int64_t k, const float* a,
                             const float* b, float* c, std::int64_t ldc) {
  constexpr std::int64_t kEight = std::min<std::int64_t>(8, kRows);
  switch (tile) {
    case 4: tile_kernel<Strips, 4>(accumulate, k, a, b, c, ldc); break;
    case 8: tile_kernel<Strips, kEight>(accumulate, k, a, b, c, ldc); break;
    default: tile_kernel<Strips, kRows>(accumulate, k, a, b, c, ldc); break;
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

// Transposes a 4x4 square: dst[i * width + j] = src[j * stride + i].
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

// Transposes two rows of four: dst[i * width + j] = src[j * stride + i].
template <class T>
HWY_INLINE void transpose_pair(const T* src, std::int64_t stride, float* dst, std::int64_t width) {
  const Quad d;
  const hn::Half<Quad> half;
  const auto r0 = load_quad(src), r1 = load_quad(src + stride);
  const auto lower = hn::InterleaveLower(d, r0, r1), upper = hn::InterleaveUpper(d, r0, r1);
  hn::StoreU(hn::LowerHalf(half, lower), half, dst);
  hn::StoreU(hn::UpperHalf(half, lower), half, dst + width);
  hn::StoreU(hn::LowerHalf(half, upper), half, dst + 2 * width);
  hn::StoreU(hn::UpperHalf(half, upper), half, dst + 3 * width);
}
#endif

// Sets dst[i * kWidth + j] = src[j * stride_j + i * stride_i], any strides; 0 from `width` on.
template <std::int64_t kWidth, class T>
HWY_INLINE void pack_any(const T* src, std::int64_t stride_j, std::int64_t stride_i,
                         std::int64_t width, std::int64_t k, float* dst) {
  for (std::int64_t i = 0; i < k; ++i) {
    for (std::int64_t j = 0; j < kWidth; ++j) {
      dst[i * kWidth + j] = j < width ? widen(src[j * stride_j + i * stride_i]) : 0.0f;
    }
  }
}

// Packs whole strips with the elements of one i side by side. A few i at a time, so that the lines
// they come from stay in L1 even where their distance is a multiple of a page; those of the next
// few are fetched meanwhile.
template <std::int64_t kWidth, class T>
HWY_INLINE void pack_rows(const T* src, std::int64_t stride_i, std::int64_t strips, std::int64_t k,
                          float* dst) {
  constexpr std::int64_t kGroup = 8;
  for (std::int64_t first = 0; first < k; first += kGroup) {
    const std::int64_t last = std::min(k, first + kGroup);
    for (std::int64_t s = 0; s < strips; ++s) {
      float* to = dst + s * kWidth * k;
      for (std::int64_t i = first; i < last; ++i) {
        const T* from = src + i * stride_i + s * kWidth;
        if (i + kGroup < k) {
          for (std::int64_t j = 0; j < kWidth; j += kLine) {
            hwy::Prefetch(from + kGroup * stride_i + j);
          }
        }
        std::int64_t j = 0;
        for (; j + kLanes <= kWidth; j += kLanes) store(load(from + j), to + i * kWidth + j);
#if HWY_TARGET != HWY_SCALAR
        for (; j + 4 <= kWidth; j += 4) {
          hn::StoreU(load_quad(from + j), Quad(), to + i * kWidth + j);
        }
#endif
        for (; j < kWidth; ++j) to[i * kWidth + j] = widen(from[j]);
      }
    }
  }
}

#if HWY_TARGET != HWY_SCALAR
// Packs a whole strip with the elements of one j side by side, transposed in squares. The elements
// of a cache line are used up before the next rows, again because rows may be pages apart. `more`:
// whether another strip follows, which is fetched meanwhile.
template <std::int64_t kWidth, class T>
HWY_INLINE void pack_columns(const T* src, std::int64_t stride_j, std::int64_t k, bool more,
                             float* dst) {
  constexpr std::int64_t kSquares = kWidth / 4 * 4;
  static_assert(kWidth - kSquares == 0 || kWidth - kSquares == 2);
  const std::int64_t whole = k / 4 * 4;
  for (std::int64_t first = 0; first < whole; first += kLine) {
    const std::int64_t last = std::min(whole, first + kLine);
    for (std::int64_t j = 0; more && j < kWidth; ++j) {
      hwy::Prefetch(src + (kWidth + j) * stride_j + first);
    }
    for (std::int64_t j = 0; j < kSquares; j += 4) {
      const T* from = src + j * stride_j;
      for (std::int64_t i = first; i < last; i += 4) {
        transpose_quad(from + i, stride_j, dst + i * kWidth + j, kWidth);
      }
    }
    if constexpr (kSquares < kWidth) {
      const T* from = src + kSquares * stride_j;
      for (std::int64_t i = first; i < last; i += 4) {
        transpose_pair(from + i, stride_j, dst + i * kWidth + kSquares, kWidth);
      }
    }
  }
  pack_any<kWidth>(src + whole, stride_j, 1, kWidth, k - whole, dst + whole * kWidth);
}
#endif

// Packs strips of kWidth: dst[(j / kWidth) * kWidth * k + i * kWidth + j % kWidth] is element (j,
// i) for j < count, i < k, and zero up to the end of the last strip. One of the strides is 1.
template <std::int64_t kWidth, class T>
HWY_NOINLINE void pack(const T* src, std::int64_t stride_j, std::int64_t stride_i,
                       std::int64_t count, std::int64_t k, float* dst) {
  std::int64_t j = 0;
  if (stride_j == 1) {
    const std::int64_t strips = count / kWidth;
    pack_rows<kWidth>(src, stride_i, strips, k, dst);
    j = strips * kWidth;
  }
#if HWY_TARGET != HWY_SCALAR
  if (stride_i == 1 && stride_j != 1) {
    for (; j + kWidth <= count; j += kWidth) {
      const bool more = j + 2 * kWidth <= count;
      pack_columns<kWidth>(src + j * stride_j, stride_j, k, more, dst + j * k);
    }
  }
#endif
  for (; j < count; j += kWidth) {
    pack_any<kWidth>(src + j * stride_j, stride_j, stride_i, std::min(kWidth, count - j), k,
                     dst + j * k);
  }
}

#if HWY_TARGET == HWY_AVX3
// Packs `kCount` pairs, each of an element of the row `lower` and the one of `upper` below it.
template <int kCount>
HWY_INLINE void join_rows(const BF16* lower, const BF16* upper, float* dst) {
  const hn::FixedTag<std::uint32_t, kCount> d32;
  const hn::FixedTag<std::uint16_t, kCount> d16;
  const auto widened = [&](const BF16* from) HWY_ATTR {
    return hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(from)));
  };
  hn::StoreU(hn::Or(widened(lower), hn::ShiftLeft<16>(widened(upper))), d32,
             reinterpret_cast<std::uint32_t*>(dst));
}

HWY_INLINE float pair_of(BF16 lower, BF16 upper) {
  return std::bit_cast<float>(std::uint32_t{lower.bits} | std::uint32_t{upper.bits} << 16);
}

// Packs pairs of elements of K, as pack() packs elements: ⌈k / 2⌉ steps, an odd k ends with a zero.
template <std::int64_t kWidth>
HWY_NOINLINE void pack_pairs(const BF16* src, std::int64_t stride_j, std::int64_t stride_i,
                             std::int64_t count, std::int64_t k, float* dst) {
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(src) % sizeof(float) == 0;
  if (stride_i == 1 && stride_j != 1 && stride_j % 2 == 0 && k % 2 == 0 && is_aligned) {
    return pack<kWidth>(reinterpret_cast<const float*>(src), stride_j / 2, 1, count, k / 2, dst);
  }
  const std::int64_t steps = ceil_div(k, std::int64_t{2}), whole = k / 2;
  const std::int64_t strips = stride_j == 1 ? count / kWidth : 0;
  constexpr std::int64_t kGroup = 4;  // steps, as in pack_rows()
  for (std::int64_t first = 0; first < whole && strips > 0; first += kGroup) {
    const std::int64_t last = std::min(whole, first + kGroup);
    for (std::int64_t s = 0; s < strips; ++s) {
      for (std::int64_t i = first; i < last; ++i) {
        const BF16* from = src + 2 * i * stride_i + s * kWidth;
        const BF16* next = from + stride_i;
        float* to = dst + (s * steps + i) * kWidth;
        if (i + kGroup < whole) {
          for (std::int64_t j = 0; j < kWidth; j += 2 * kLine) {
            hwy::Prefetch(from + 2 * kGroup * stride_i + j);
            hwy::Prefetch(next + 2 * kGroup * stride_i + j);
          }
        }
        std::int64_t j = 0;
        for (; j + kLanes <= kWidth; j += kLanes) join_rows<kLanes>(from + j, next + j, to + j);
        for (; j + 4 <= kWidth; j += 4) join_rows<4>(from + j, next + j, to + j);
        for (; j < kWidth; ++j) to[j] = pair_of(from[j], next[j]);
      }
    }
  }
  for (std::int64_t j = 0; j < count; j += kWidth) {
    const bool is_done = j / kWidth < strips;
    for (std::int64_t i = is_done ? whole : 0; i < steps; ++i) {
      for (std::int64_t c = 0; c < kWidth; ++c) {
        const BF16* from = src + (j + c) * stride_j + 2 * i * stride_i;
        const bool is_there = j + c < count;
        dst[j * steps + i * kWidth + c] =
            pair_of(is_there ? *from : BF16(), is_there && 2 * i + 1 < k ? from[stride_i] : BF16());
      }
    }
  }
}
#endif

template <std::int64_t kWidth, class Strips, class T>
HWY_INLINE void pack_as(const T* src, std::int64_t stride_j, std::int64_t stride_i,
                        std::int64_t count, std::int64_t k, float* dst) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (std::is_same_v<Strips, Pairs>) {
    return pack_pairs<kWidth>(src, stride_j, stride_i, count, k, dst);
  }
#endif
  if constexpr (std::is_same_v<Strips, Floats>) {
    pack<kWidth>(src, stride_j, stride_i, count, k, dst);
  }
}

// A part of `b`: `n` columns over `k` rows.
template <class T>
struct Panel {
  const T* data = nullptr;
  std::int64_t stride_j = 0, stride_i = 0;
  std::int64_t n = 0, k = 0;
};

// Prefetches the memory from which a strip of `b` will be packed, a few cache lines in each turn,
// so that packing does not wait for memory: weights come from beyond the caches.
template <class T>
class StripFetch {
 public:
  // Fetches columns j.. of `b`, or, after its last, the first ones of `after`; all of them in
  // `turns` calls of some().
  StripFetch(const Panel<T>& b, std::int64_t j, const Panel<T>& after, std::int64_t turns) {
    const bool is_last = j >= b.n;
    const Panel<T>& of = is_last ? after : b;
    const std::int64_t first = is_last ? 0 : j, columns = std::min(kColumns, of.n - first);
    if (columns <= 0 || of.k <= 0) return;
    row_ = of.data + first * of.stride_j;
    const bool is_along_k = of.stride_j != 1;
    stride_ = is_along_k ? of.stride_j : of.stride_i;
    rows_ = is_along_k ? columns : of.k;
    width_ = is_along_k ? of.k : columns;
    per_turn_ = ceil_div(rows_ * ceil_div(width_, kPerLine), turns);
  }

  HWY_INLINE void some() {
    for (std::int64_t i = 0; i < per_turn_ && rows_ > 0; ++i) {
      __builtin_prefetch(row_ + at_, 0, 2);
      at_ += kPerLine;
      if (at_ < width_) continue;
      at_ = 0;
      row_ += stride_;
      --rows_;
    }
  }

 private:
  static constexpr auto kPerLine = static_cast<std::int64_t>(64 / sizeof(T));
  const T* row_ = nullptr;
  // The elements from row to row, the rows that remain, and the elements of a row.
  std::int64_t stride_ = 0, rows_ = 0, width_ = 0;
  // How many elements of the row were fetched, and how many cache lines are in each turn.
  std::int64_t at_ = 0, per_turn_ = 0;
};

// Fetches the next packed strip into L2, a few lines a turn: another core packed it, or it went
// beyond L2 since.
class PackedFetch {
 public:
  // Fetches `floats` of the strip, all of them in `turns` calls of some().
  PackedFetch(const float* strip, std::int64_t floats, std::int64_t turns)
      : at_{strip}, end_{strip + floats}, per_turn_{ceil_div(floats, turns * kLine)} {}

  HWY_INLINE void some() {
    for (std::int64_t i = 0; i < per_turn_ && at_ < end_; ++i, at_ += kLine) {
      __builtin_prefetch(at_, 0, 2);
    }
  }

 private:
  const float *at_, *end_;
  std::int64_t per_turn_;  // lines
};

// Sets c[m, columns] (+)= packed `a` times a packed strip of `b`; meanwhile fetches by `next`.
template <class Strips, class Fetch>
HWY_INLINE void multiply_strip(bool accumulate, std::int64_t m, std::int64_t steps, const float* a,
                               const float* strip, std::int64_t columns, Fetch& next, float* c,
                               std::int64_t ldc) {
  for (std::int64_t i = 0; i < m; i += kRows, a += kRows * steps) {
    float* out = c + i * ldc;
    const std::int64_t rows = std::min(kRows, m - i), tile = tile_rows(rows);
    next.some();
    if (rows == tile && columns == kColumns) {
      micro_kernel<Strips>(tile, accumulate, steps, a, strip, out, ldc);
      continue;
    }
    alignas(64) float edge[kRows * kColumns];
    micro_kernel<Strips>(tile, false, steps, a, strip, edge, kColumns);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t s = 0; s < columns; ++s) {
        const float x = edge[r * kColumns + s];
        out[r * ldc + s] = accumulate ? out[r * ldc + s] + x : x;
      }
    }
  }
}

// Computes c[m, b.n] (+)= packed `a` times `b`. Every strip of `b` is packed right before its use,
// in `strip` (kColumns * k floats), which stays in L1 while all of `a` passes by. The first strip
// of `after`, the panel that comes next, is fetched.
template <class Strips, class T>
HWY_NOINLINE void multiply_panel(bool accumulate, std::int64_t m, const float* a, const Panel<T>& b,
                                 const Panel<T>& after, float* strip, float* c, std::int64_t ldc) {
  const std::int64_t steps = ceil_div(b.k, Strips::kPerStep);
  for (std::int64_t j = 0; j < b.n; j += kColumns) {
    const std::int64_t columns = std::min(kColumns, b.n - j);
    pack_as<kColumns, Strips>(b.data + j * b.stride_j, b.stride_j, b.stride_i, columns, b.k, strip);
    StripFetch<T> next(b, j + kColumns, after, ceil_div(m, kRows));
    multiply_strip<Strips>(accumulate, m, steps, a, strip, columns, next, c + j, ldc);
  }
}

// Packed operands and products of vectors as matmul.cpp asks for them. kUnit rows are packed
// together, and begin at row · steps(k) of a packed block; `Base` is Floats or Pairs.
template <class Base>
struct VectorStrips {
  static constexpr std::int64_t kPerStep = Base::kPerStep;
  static constexpr std::int64_t kUnit = kRows;
  static std::int64_t steps(std::int64_t k) { return ceil_div(k, kPerStep); }
  using Rows = const float*;
  static Rows packed_rows(const float* packed, std::int64_t /*k*/) { return packed; }
  static constexpr std::int64_t kRowsInPlace = 0;      // They are always packed.
  static constexpr std::int64_t kColumnsTogether = 0;  // All of a block.
  template <class T>
  static void pack_rows_of_a(const T* src, std::int64_t stride_j, std::int64_t stride_i,
                             std::int64_t count, std::int64_t k, float* dst) {
    pack_as<kRows, Base>(src, stride_j, stride_i, count, k, dst);
  }
  template <class T>
  static void multiply(bool accumulate, std::int64_t m, const float* a, const Panel<T>& b,
                       const Panel<T>& after, float* strip, float* c, std::int64_t ldc) {
    multiply_panel<Base>(accumulate, m, a, b, after, strip, c, ldc);
  }
  // Packs the columns of `b` as strips, one after the other, for multiply_packed().
  template <class T>
  static void pack_columns_of_b(const Panel<T>& b, float* dst) {
    pack_as<kColumns, Base>(b.data, b.stride_j, b.stride_i, b.n, b.k, dst);
  }
  static HWY_NOINLINE void multiply_packed(bool accumulate, std::int64_t m, const float* a,
                                           std::int64_t n, std::int64_t k, const float* b, float* c,
                                           std::int64_t ldc) {
    const std::int64_t floats = kColumns * steps(k);
    for (std::int64_t j = 0; j < n; j += kColumns, b += floats) {
      PackedFetch next(b + floats, j + kColumns < n ? floats : 0, ceil_div(m, kRows));
      multiply_strip<Base>(accumulate, m, steps(k), a, b, std::min(kColumns, n - j), next, c + j,
                           ldc);
    }
  }
};

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TRACESTEP_BACKENDS_CPU_GEMM_INL_H
