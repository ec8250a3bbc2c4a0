// Integer arithmetic of shapes and sizes.
#pragma once

#include <cstdint>

namespace tracestep {

// Returns ⌈a / b⌉ for a >= 0, b > 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Returns the least multiple of `unit` that is at least `a`.
constexpr std::int64_t round_up(std::int64_t a, std::int64_t unit) {
  return ceil_div(a, unit) * unit;
}

}  // namespace tracestep
