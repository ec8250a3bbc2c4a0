// The packed product of bfloat16 by tiles of the processor (AMX): 16 rows of 16 pairs along K each,
// two by two of them in the result. The index logic uses five operations on tiles, which the
// processor has, and which EmulatedTiles has in plain code for tests on other processors. Strips of
// `b` are those of pairs in gemm-inl.h, followed by zeros up to a whole tile.
#if defined(TRACESTEP_BACKENDS_CPU_TILE_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TRACESTEP_BACKENDS_CPU_TILE_PRODUCTS_INL_H
#undef TRACESTEP_BACKENDS_CPU_TILE_PRODUCTS_INL_H
#else
#define TRACESTEP_BACKENDS_CPU_TILE_PRODUCTS_INL_H
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "backends/cpu/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tracestep::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

// A tile of bfloat16 has 16 rows of 16 pairs, one of float32 16 rows of 16 columns: 1 KiB.
constexpr std::int64_t kTileRows = 16, kTilePairs = 16, kTileFloats = kTileRows * kTilePairs;
constexpr std::int64_t kTileBytes = kTileFloats * static_cast<std::int64_t>(sizeof(float));
static_assert(kColumns == 2 * kTileRows && kLanes == kTilePairs);

// The processor's tiles, eight registers, named by numbers: accumulators 0 to 3, operands 4 to 7.
struct ProcessorTiles {
  // Configures all registers as whole tiles.
  ProcessorTiles() {
    struct alignas(64) Configuration {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static_assert(sizeof(Configuration) == 64);
    static const Configuration configuration;
    asm volatile("ldtilecfg %0" : : "m"(configuration));
  }
  // Releases the tiles: threads without data in tiles are switched faster.
  ~ProcessorTiles() { asm volatile("tilerelease" : : : "memory"); }
  ProcessorTiles(const ProcessorTiles&) = delete;
  ProcessorTiles& operator=(const ProcessorTiles&) = delete;

  template <int kTo>
  HWY_INLINE void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTo));
  }
  // Loads a tile whose rows are `stride` bytes apart.
  template <int kTo>
  HWY_INLINE void load(const void* from, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTo) : "memory");
  }
  template <int kFrom>
  HWY_INLINE void store(float* to, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kFrom) : "memory");
  }
  // Adds a product: sum += a b.
  template <int kSum, int kA, int kB>
  HWY_INLINE void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
};

// Does the operations of ProcessorTiles in plain code. By Intel's manual (Software Developer's
// Manual, volume 2, TDPBF16PS), products of even and of odd k are summed apart, from zero, in the
// order of k; the two sums are added, and that is added to the result. Subnormal numbers are taken
// for zero, and so are subnormal results.
struct EmulatedTiles {
  static float flushed(double x) {
    const auto rounded = static_cast<float>(x);
    return std::abs(rounded) < 0x1p-126f ? std::copysign(0.0f, rounded) : rounded;
  }
  static float half_of(float pair, bool is_odd) {
    const auto bits = std::bit_cast<std::uint32_t>(pair);
    const float value = std::bit_cast<float>(is_odd ? bits & 0xffff0000U : bits << 16);
    return flushed(static_cast<double>(value));
  }

  template <int kTo>
  void zero() {
    std::fill(tiles_[kTo], tiles_[kTo] + kTileFloats, 0.0f);
  }
  template <int kTo>
  void load(const void* from, std::int64_t stride) {
    const auto* bytes = static_cast<const std::byte*>(from);
    for (std::int64_t r = 0; r < kTileRows; ++r) {
      std::memcpy(tiles_[kTo] + r * kTilePairs, bytes + r * stride, 64);
    }
  }
  template <int kFrom>
  void store(float* to, std::int64_t stride) {
    auto* bytes = reinterpret_cast<std::byte*>(to);
    for (std::int64_t r = 0; r < kTileRows; ++r) {
      std::memcpy(bytes + r * stride, tiles_[kFrom] + r * kTilePairs, 64);
    }
  }
  template <int kSum, int kA, int kB>
  void dot() {
    for (std::int64_t m = 0; m < kTileRows; ++m) {
      float sums[2][kTileRows] = {};  // The sums of even and of odd k.
      for (std::int64_t k = 0; k < kTilePairs; ++k) {
        for (const bool is_odd : {false, true}) {
          const auto a = static_cast<double>(half_of(tiles_[kA][m * kTilePairs + k], is_odd));
          for (std::int64_t n = 0; n < kTileRows; ++n) {
            const double b = half_of(tiles_[kB][k * kTileRows + n], is_odd);
            float& sum = sums[is_odd ? 1 : 0][n];
            sum = flushed(static_cast<double>(sum) + a * b);  // the product is exact
          }
        }
      }
      for (std::int64_t n = 0; n < kTileRows; ++n) {
        float& result = tiles_[kSum][m * kTileRows + n];
        const float both =
            flushed(static_cast<double>(sums[0][n]) + static_cast<double>(sums[1][n]));
        result = flushed(flushed(static_cast<double>(result)) + static_cast<double>(both));
      }
    }
  }

 private:
  alignas(64) float tiles_[8][kTileFloats];
};

// Transposes sixteen rows of sixteen words.
HWY_INLINE void transpose_words(hn::Vec<DU> (&x)[16]) {
  __m512i t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(x[i].raw, x[i + 1].raw);
    t[i + 1] = _mm512_unpackhi_epi32(x[i].raw, x[i + 1].raw);
  }
  __m512i q[16];  // q[4g + c]: of rows 4g.., in each quarter, one column
#pragma GCC unroll 4
  for (int g = 0; g < 16; g += 4) {
    q[g] = _mm512_unpacklo_epi64(t[g], t[g + 2]);
    q[g + 1] = _mm512_unpackhi_epi64(t[g], t[g + 2]);
    q[g + 2] = _mm512_unpacklo_epi64(t[g + 1], t[g + 3]);
    q[g + 3] = _mm512_unpackhi_epi64(t[g + 1], t[g + 3]);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i a = _mm512_shuffle_i32x4(q[c], q[4 + c], 0x88);
    const __m512i b = _mm512_shuffle_i32x4(q[8 + c], q[12 + c], 0x88);
    const __m512i e = _mm512_shuffle_i32x4(q[c], q[4 + c], 0xdd);
    const __m512i f = _mm512_shuffle_i32x4(q[8 + c], q[12 + c], 0xdd);
    x[c].raw = _mm512_shuffle_i32x4(a, b, 0x88);
    x[8 + c].raw = _mm512_shuffle_i32x4(a, b, 0xdd);
    x[4 + c].raw = _mm512_shuffle_i32x4(e, f, 0x88);
    x[12 + c].raw = _mm512_shuffle_i32x4(e, f, 0xdd);
  }
}

// Loads 16 pairs of neighbours, of which the first `n` elements count; the others become zeros.
HWY_INLINE hn::Vec<DU> load_pairs(const BF16* from, std::int64_t n) {
  const DU du;
  if (n >= 2 * kTilePairs) return hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(from));
  alignas(64) std::uint32_t words[kTilePairs] = {};
  std::memcpy(words, from, static_cast<std::size_t>(std::max<std::int64_t>(0, n)) * sizeof(BF16));
  return hn::Load(du, words);
}

// Loads 16 pairs, each of an element of `lower` and of `upper` (or 0); the first `n` count.
HWY_INLINE hn::Vec<DU> load_joined(const BF16* lower, const BF16* upper, std::int64_t n) {
  const DU du;
  const hn::Rebind<std::uint16_t, DU> d16;
  const auto widened = [&](const BF16* from) HWY_ATTR {
    if (n >= kTileRows) {
      return hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(from)));
    }
    alignas(32) std::uint16_t some[kTileRows] = {};
    std::memcpy(some, from, static_cast<std::size_t>(n) * sizeof(BF16));
    return hn::PromoteTo(du, hn::Load(d16, some));
  };
  const auto low = widened(lower);
  return upper == nullptr ? low : hn::Or(low, hn::ShiftLeft<16>(widened(upper)));
}

// Packs a tile of `a`, whose row r has the pairs of a(r, ·): `rows` of 16 rows along j, and up to
// 32 of `k` elements of K; the rest is zero. One of the strides is 1.
HWY_INLINE void pack_tile(const BF16* src, std::int64_t stride_j, std::int64_t stride_i,
                          std::int64_t rows, std::int64_t k, float* dst) {
  const DU du;
  auto* words = reinterpret_cast<std::uint32_t*>(dst);
  if (stride_i == 1) {
    for (std::int64_t r = 0; r < kTileRows; ++r) {
      const auto pairs = r < rows ? load_pairs(src + r * stride_j, k) : hn::Zero(du);
      hn::Store(pairs, du, words + r * kTilePairs);
    }
    return;
  }
  hn::Vec<DU> x[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    const BF16* lower = src + 2 * i * stride_i;
    const bool has_lower = 2 * i < k, has_upper = 2 * i + 1 < k;
    x[i] =
        has_lower ? load_joined(lower, has_upper ? lower + stride_i : nullptr, rows) : hn::Zero(du);
  }
  transpose_words(x);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) hn::Store(x[i], du, words + i * kTilePairs);
}

// Packs panels of 32 rows: for every 32 of K the tile of the upper 16 rows and that of the lower.
inline HWY_NOINLINE void pack_tile_rows(const BF16* src, std::int64_t stride_j,
                                        std::int64_t stride_i, std::int64_t count, std::int64_t k,
                                        float* dst) {
  for (std::int64_t j = 0; j < count; j += 2 * kTileRows) {
    for (std::int64_t i = 0; i < k; i += 2 * kTilePairs) {
      for (std::int64_t half = 0; half < 2; ++half, dst += kTileFloats) {
        const std::int64_t row = j + half * kTileRows;
        if (row >= count) continue;  // nobody reads that tile
        pack_tile(src + row * stride_j + i * stride_i, stride_j, stride_i,
                  std::min(kTileRows, count - row), k - i, dst);
      }
    }
  }
}

// Packs a strip of `b`, 32 columns wide: pairs of K, k and k + 1, in the place of a float32, and
// zeros up to a whole tile.
inline HWY_NOINLINE void pack_tile_strip(const BF16* src, std::int64_t stride_j,
                                         std::int64_t stride_i, std::int64_t columns,
                                         std::int64_t k, float* dst) {
  const DU du;
  const std::int64_t steps = ceil_div(k, std::int64_t{2}), whole = round_up(steps, kTilePairs);
  if (stride_i != 1 || stride_j == 1) {
    pack_pairs<kColumns>(src, stride_j, stride_i, columns, k, dst);
    std::fill(dst + steps * kColumns, dst + whole * kColumns, 0.0f);
    return;
  }
  auto* words = reinterpret_cast<std::uint32_t*>(dst);
  for (std::int64_t i = 0; i < whole; i += kTilePairs) {
    for (std::int64_t half = 0; half < kColumns; half += kTileRows) {
      hn::Vec<DU> x[16];
#pragma GCC unroll 16
      for (int c = 0; c < 16; ++c) {
        const BF16* from = src + (half + c) * stride_j + 2 * i;
        x[c] = half + c < columns ? load_pairs(from, k - 2 * i) : hn::Zero(du);
      }
      transpose_words(x);
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) hn::Store(x[r], du, words + (i + r) * kColumns + half);
    }
  }
}

// Where the tiles of rows of `a` are. All distances are in bytes: from row to row, from the upper
// tile of a panel of 32 rows to the lower one, from a tile to the next 32 of K, and from panel to
// panel.
struct TileRows {
  const std::byte* at = nullptr;
  std::int64_t row = 0, lower = 0, next = 0, panel = 0;
};

// Returns the tiles that pack_tile_rows() wrote; `steps`: pairs of K, needed for several panels.
HWY_INLINE TileRows packed_tiles(const float* packed, std::int64_t steps = 0) {
  constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));
  return {.at = reinterpret_cast<const std::byte*>(packed),
          .row = kTilePairs * kFloat,
          .lower = kTileBytes,
          .next = 2 * kTileBytes,
          .panel = 2 * kTileRows * steps * kFloat};
}

// Returns the tiles of a matrix whose rows, `stride` elements apart, have K side by side: nothing
// is packed. Rows and depth must be whole tiles.
HWY_INLINE TileRows tiles_in_place(const BF16* rows, std::int64_t stride) {
  const std::int64_t row = stride * static_cast<std::int64_t>(sizeof(BF16));
  return {.at = reinterpret_cast<const std::byte*>(rows),
          .row = row,
          .lower = kTileRows * row,
          .next = 2 * kTilePairs * static_cast<std::int64_t>(sizeof(BF16)),
          .panel = 2 * kTileRows * row};
}

// Computes c[16 kDown, 16 kAcross] (+)= a panel of rows times a strip, `depth` tiles of K.
template <int kDown, int kAcross, class Tiles>
HWY_INLINE void multiply_tiles(Tiles& tiles, bool accumulate, std::int64_t depth, const TileRows& a,
                               const float* b, float* c, std::int64_t ldc) {
  constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));
  constexpr std::int64_t kStripRow = kColumns * kFloat;
  const std::byte* rows = a.at;
  float* lower = c + kTileRows * ldc;
  if (accumulate) {
    tiles.template load<0>(c, ldc * kFloat);
    if constexpr (kAcross > 1) tiles.template load<1>(c + kTileRows, ldc * kFloat);
    if constexpr (kDown > 1) tiles.template load<2>(lower, ldc * kFloat);
    if constexpr (kDown > 1 && kAcross > 1) {
      tiles.template load<3>(lower + kTileRows, ldc * kFloat);
    }
  } else {
    tiles.template zero<0>();
    tiles.template zero<1>();
    tiles.template zero<2>();
    tiles.template zero<3>();
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    tiles.template load<4>(rows, a.row);
    tiles.template load<6>(b, kStripRow);
    tiles.template dot<0, 4, 6>();
    if constexpr (kAcross > 1) {
      tiles.template load<7>(b + kTileRows, kStripRow);
      tiles.template dot<1, 4, 7>();
    }
    if constexpr (kDown > 1) {
      tiles.template load<5>(rows + a.lower, a.row);
      tiles.template dot<2, 5, 6>();
      if constexpr (kAcross > 1) tiles.template dot<3, 5, 7>();
    }
    rows += a.next;
    b += 2 * kTileFloats;
  }
  tiles.template store<0>(c, ldc * kFloat);
  if constexpr (kAcross > 1) tiles.template store<1>(c + kTileRows, ldc * kFloat);
  if constexpr (kDown > 1) tiles.template store<2>(lower, ldc * kFloat);
  if constexpr (kDown > 1 && kAcross > 1) tiles.template store<3>(lower + kTileRows, ldc * kFloat);
}

// Computes what multiply_tiles() does, for `rows` and `columns` of up to 32: tiles are whole, so
// narrower results are computed in a buffer and copied.
template <class Tiles>
HWY_INLINE void multiply_some(Tiles& tiles, bool accumulate, std::int64_t depth, const TileRows& a,
                              const float* b, std::int64_t rows, std::int64_t columns, float* c,
                              std::int64_t ldc) {
  if (rows == 2 * kTileRows && columns == kColumns) {
    return multiply_tiles<2, 2>(tiles, accumulate, depth, a, b, c, ldc);
  }
  if (rows == kTileRows && columns == kColumns) {
    return multiply_tiles<1, 2>(tiles, accumulate, depth, a, b, c, ldc);
  }
  if (rows == 2 * kTileRows && columns == kTileRows) {
    return multiply_tiles<2, 1>(tiles, accumulate, depth, a, b, c, ldc);
  }
  alignas(64) float edge[2 * kTileRows * kColumns] = {};
  for (std::int64_t r = 0; accumulate && r < rows; ++r) {
    std::copy_n(c + r * ldc, columns, edge + r * kColumns);
  }
  if (rows > kTileRows) {
    multiply_tiles<2, 2>(tiles, accumulate, depth, a, b, edge, kColumns);
  } else {
    multiply_tiles<1, 2>(tiles, accumulate, depth, a, b, edge, kColumns);
  }
  for (std::int64_t r = 0; r < rows; ++r) std::copy_n(edge + r * kColumns, columns, c + r * ldc);
}

// Packed operands and products of tiles for matmul.cpp, like VectorStrips in gemm-inl.h.
template <class Tiles>
struct TileStrips {
  static constexpr std::int64_t kPerStep = 2;
  static constexpr std::int64_t kUnit = 2 * kTileRows;  // rows that are packed together
  static std::int64_t steps(std::int64_t k) { return round_up(ceil_div(k, 2), kTilePairs); }
  using Rows = TileRows;
  static Rows packed_rows(const float* packed, std::int64_t k) {
    return packed_tiles(packed, steps(k));
  }
  // Rows with K side by side can be read in place, in units of this many rows and elements of K.
  static constexpr std::int64_t kRowsInPlace = kTileRows, kDepthInPlace = 2 * kTilePairs;
  static Rows rows_in_place(const BF16* rows, std::int64_t stride) {
    return tiles_in_place(rows, stride);
  }
  // The most columns whose sums should stay in a cache of 2 MiB, beside the rows of `a` of a block.
  static constexpr std::int64_t kColumnsTogether = 256;
  static void pack_rows_of_a(const BF16* src, std::int64_t stride_j, std::int64_t stride_i,
                             std::int64_t count, std::int64_t k, float* dst) {
    pack_tile_rows(src, stride_j, stride_i, count, k, dst);
  }
  static HWY_NOINLINE void multiply(bool accumulate, std::int64_t m, const Rows& a,
                                    const Panel<BF16>& b, const Panel<BF16>& after, float* strip,
                                    float* c, std::int64_t ldc) {
    Tiles tiles;
    for (std::int64_t j = 0; j < b.n; j += kColumns) {
      const std::int64_t columns = std::min(kColumns, b.n - j);
      pack_tile_strip(b.data + j * b.stride_j, b.stride_j, b.stride_i, columns, b.k, strip);
      StripFetch<BF16> next(b, j + kColumns, after, ceil_div(m, kUnit));
      multiply_strip(tiles, accumulate, m, steps(b.k), a, strip, columns, next, c + j, ldc);
    }
  }
  static void pack_columns_of_b(const Panel<BF16>& b, float* dst) {
    for (std::int64_t j = 0; j < b.n; j += kColumns, dst += kColumns * steps(b.k)) {
      pack_tile_strip(b.data + j * b.stride_j, b.stride_j, b.stride_i, std::min(kColumns, b.n - j),
                      b.k, dst);
    }
  }
  static HWY_NOINLINE void multiply_packed(bool accumulate, std::int64_t m, const Rows& a,
                                           std::int64_t n, std::int64_t k, const float* b, float* c,
                                           std::int64_t ldc) {
    Tiles tiles;
    const std::int64_t floats = kColumns * steps(k);
    for (std::int64_t j = 0; j < n; j += kColumns, b += floats) {
      PackedFetch next(b + floats, j + kColumns < n ? floats : 0, ceil_div(m, kUnit));
      multiply_strip(tiles, accumulate, m, steps(k), a, b, std::min(kColumns, n - j), next, c + j,
                     ldc);
    }
  }

 private:
  template <class Fetch>
  static HWY_INLINE void multiply_strip(Tiles& tiles, bool accumulate, std::int64_t m,
                                        std::int64_t of_steps, Rows a, const float* strip,
                                        std::int64_t columns, Fetch& next, float* c,
                                        std::int64_t ldc) {
    for (std::int64_t i = 0; i < m; i += kUnit, a.at += a.panel) {
      next.some();
      multiply_some(tiles, accumulate, of_steps / kTilePairs, a, strip, std::min(kUnit, m - i),
                    columns, c + i * ldc, ldc);
    }
  }
};

#endif

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TRACESTEP_BACKENDS_CPU_TILE_PRODUCTS_INL_H
