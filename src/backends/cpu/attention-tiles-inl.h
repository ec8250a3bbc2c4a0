// Products of attention by tiles of the processor, for heads of bfloat16 whose rows fill whole
// tiles. Panels are those of attention-inl.h. Scores are products of what is stored; weights, and
// slopes of scores, are rounded to bfloat16 before they are multiplied, as on a GPU.
#if defined(TRACESTEP_BACKENDS_CPU_ATTENTION_TILES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TRACESTEP_BACKENDS_CPU_ATTENTION_TILES_INL_H
#undef TRACESTEP_BACKENDS_CPU_ATTENTION_TILES_INL_H
#else
#define TRACESTEP_BACKENDS_CPU_ATTENTION_TILES_INL_H
#endif

#include "backends/cpu/attention-inl.h"
#include "backends/cpu/bf16_products.h"
#include "backends/cpu/tile-products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tracestep::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

// The elements of K in a tile, and the rows (or columns) that two tiles hold together.
constexpr std::int64_t kDeep = 2 * kTilePairs, kBlock = 2 * kTileRows;
static_assert(kBlock == kColumns && kPanel % kBlock == 0);

// Returns the steps of a product over `k` elements: pairs along K, padded to a whole tile.
constexpr std::int64_t steps_of(std::int64_t k) {
  return round_up(ceil_div(k, std::int64_t{2}), kTilePairs);
}

// Returns x rounded to bfloat16 in the upper half of each 32-bit word; the lower half has no
// meaning, and the caller drops it.
HWY_INLINE hn::Vec<DU> rounded_words(V x) {
  const DU du;
  const auto u = hn::BitCast(du, x.v);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1));
  const auto rounded = hn::Add(u, hn::Add(odd, hn::Set(du, 0x7fff)));
  const auto is_nan = hn::RebindMask(du, hn::Ne(x.v, x.v));
  return hn::IfThenElse(is_nan, hn::Or(u, hn::Set(du, 0x400000)), rounded);
}

// Rounds 32 columns of `rows` rows of a panel; packs them as a strip of `b` with the rows along K.
HWY_INLINE void join_panel_rows(const float* panel, std::int64_t rows, float* strip) {
  const DU du;
  auto* words = reinterpret_cast<std::uint32_t*>(strip);
  for (std::int64_t i = 0; i < steps_of(rows); ++i) {
    for (std::int64_t c = 0; c < kBlock; c += kLanes) {
      const float* row = panel + 2 * i * kPanel + c;
      const auto low = 2 * i < rows ? hn::ShiftRight<16>(rounded_words(load(row))) : hn::Zero(du);
      const auto high = 2 * i + 1 < rows
                            ? hn::And(rounded_words(load(row + kPanel)), hn::Set(du, 0xffff0000U))
                            : hn::Zero(du);
      hn::StoreU(hn::Or(low, high), du, words + i * kColumns + c);
    }
  }
}

// Rounds `columns` columns of `rows` rows of a panel (at most 32), and packs them as rows of `a`
// with the columns along K; rows that a tile lacks are zeros.
HWY_INLINE void round_panel_rows(const float* panel, std::int64_t rows, std::int64_t columns,
                                 float* dst) {
  const std::int64_t tile_rows = round_up(rows, kTileRows);
  for (std::int64_t c = 0; c < columns; c += kDeep, dst += 2 * kTileFloats) {
    for (std::int64_t r = 0; r < tile_rows; ++r) {
      auto* to = reinterpret_cast<BF16*>(dst + r * kTilePairs);
      for (std::int64_t i = 0; i < kDeep; i += kLanes) {
        store(r < rows ? load(panel + r * kPanel + c + i) : splat(0.0f), to + i);
      }
    }
  }
}

// Transposes 16 rows of 16 floats, `stride` apart, and calls f(i, x) for each row of the result.
template <class F>
HWY_INLINE void for_transposed(const float* from, std::int64_t stride, const F& f) {
  const DU du;
  hn::Vec<DU> x[16];
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) x[r] = hn::BitCast(du, hn::LoadU(D(), from + r * stride));
  transpose_words(x);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) f(i, V{hn::BitCast(D(), x[i])});
}

// Computes c[rows, 32] (+)= packed rows of `a` times a strip of `b`, for at most 32 rows.
template <class Tiles>
HWY_INLINE void multiply_rows(Tiles& tiles, bool accumulate, std::int64_t rows, std::int64_t depth,
                              const float* a, const float* b, float* c, std::int64_t ldc) {
  if (rows > kTileRows) {
    multiply_tiles<2, 2>(tiles, accumulate, depth, packed_tiles(a), b, c, ldc);
  } else {
    multiply_tiles<1, 2>(tiles, accumulate, depth, packed_tiles(a), b, c, ldc);
  }
}

// Computes scores as score_panel() does, from keys packed as rows of `a`, queries as strips of `b`.
template <class Tiles>
HWY_INLINE void score_tiles(Tiles& tiles, const Sight& sight, std::int64_t queries,
                            std::int64_t width, const float* packed_keys,
                            const float* packed_queries, float* panel) {
  for (std::int64_t c = 0; c < queries; c += kBlock) {
    const std::int64_t keys = sight.keys_until(c + kBlock);
    for (std::int64_t r = 0; r < keys; r += kBlock) {
      multiply_rows(tiles, false, sight.keys - r, width / kDeep, packed_keys + r * steps_of(width),
                    packed_queries + c * steps_of(width), panel + r * kPanel + c, kPanel);
    }
  }
}

// Packs rows [count, width] as strips of `b` with the width along K.
HWY_INLINE void pack_strips_across(const BF16* rows, std::int64_t stride, std::int64_t count,
                                   std::int64_t width, float* dst) {
  for (std::int64_t j = 0; j < count; j += kBlock) {
    pack_tile_strip(rows + j * stride, stride, 1, std::min(kBlock, count - j), width,
                    dst + j * steps_of(width));
  }
}
// Packs rows [count, width] as strips of `b` with the rows along K.
HWY_INLINE void pack_strips_along(const BF16* rows, std::int64_t stride, std::int64_t count,
                                  std::int64_t width, float* dst) {
  for (std::int64_t d = 0; d < width; d += kBlock) {
    pack_tile_strip(rows + d, 1, stride, kBlock, count, dst + d * steps_of(count));
  }
}

#endif

// Returns whether heads of this dtype and width are multiplied by tiles.
inline bool takes_tiles([[maybe_unused]] Bf16Products way, [[maybe_unused]] DType dtype,
                        [[maybe_unused]] std::int64_t width) {
#if HWY_TARGET == HWY_AVX3
  const bool has_tiles = way == Bf16Products::kTiles || way == Bf16Products::kEmulatedTiles;
  return has_tiles && dtype == DType::kBF16 && width % kDeep == 0;
#else
  return false;
#endif
}

#if HWY_TARGET == HWY_AVX3
// Calls f with the tiles that multiply heads of this dtype and width; false: there are none.
template <class F>
bool with_tiles(Bf16Products way, DType dtype, std::int64_t width, const F& f) {
  if (!takes_tiles(way, dtype, width)) return false;
  if (way == Bf16Products::kTiles) {
    ProcessorTiles tiles;
    f(tiles);
  } else {
    EmulatedTiles tiles;
    f(tiles);
  }
  return true;
}
#endif

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TRACESTEP_BACKENDS_CPU_ATTENTION_TILES_INL_H
