// Reductions over a row of a dense operand: tiles are summed in float32, and their results in
// float64.
#if defined(TRACESTEP_BACKENDS_CPU_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TRACESTEP_BACKENDS_CPU_ROWS_INL_H
#undef TRACESTEP_BACKENDS_CPU_ROWS_INL_H
#else
#define TRACESTEP_BACKENDS_CPU_ROWS_INL_H
#endif

#include <cmath>
#include <limits>

#include <hwy/cache_control.h>

#include "backends/cpu/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tracestep::cpu::HWY_NAMESPACE {

// Calls f(at, n) for tiles that cover begin <= i < begin + width.
template <class F>
HWY_INLINE void for_row_tiles(std::int64_t begin, std::int64_t width, const F& f) {
  for (std::int64_t i = 0; i < width; i += kTile) f(begin + i, std::min(kTile, width - i));
}

// Prefetches n floats from p on. The addresses need not be valid.
HWY_INLINE void fetch(const float* p, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += 64 / static_cast<std::int64_t>(sizeof(float))) {
    hwy::Prefetch(p + i);
  }
}

// Returns the largest scale · x; -inf if there are no elements.
HWY_INLINE float row_max(const Operand& x, std::int64_t begin, std::int64_t width, float scale) {
  const float sign = scale < 0 ? -1.0f : 1.0f;
  float top = -std::numeric_limits<float>::infinity();
  for_row_tiles(begin, width, [&](std::int64_t at, std::int64_t n) {
    Tile tile;
    const float* values = read(x, at, n, tile);
    if (sign < 0) {
      map(functors::Neg(), n, tile.data, values);
      values = tile.data;
    }
    const float own = max_of(n, values, -std::numeric_limits<float>::infinity());
    if (!(own <= top)) top = own;
  });
  return top * std::abs(scale);
}

// Returns log Σ exp(x), in one pass: the sum so far is rescaled at every new maximum.
HWY_INLINE float row_log_sum_exp(const Operand& x, std::int64_t begin, std::int64_t width) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  float top = kNothing;
  double total = 0;
  for_row_tiles(begin, width, [&](std::int64_t at, std::int64_t n) {
    Tile tile;
    const float* values = read(x, at, n, tile);
    const float own = max_of(n, values, kNothing);
    if (own == kNothing) return;
    fetch(values + n, kTile);  // also of the next row
    if (!(own <= top)) {
      total *= std::exp(static_cast<double>(top) - static_cast<double>(own));
      top = own;
    }
    const V shift = splat(top);
    total += static_cast<double>(sum_of([=](V v) HWY_ATTR { return exp(v - shift); }, n, values));
  });
  if (top == kNothing && width > 0) total = std::numeric_limits<double>::quiet_NaN();  // -inf + inf
  return static_cast<float>(std::log(total) + static_cast<double>(top));
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TRACESTEP_BACKENDS_CPU_ROWS_INL_H
