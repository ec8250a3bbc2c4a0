// The element types a value can have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/enum_words.h"

namespace tracestep {

enum class DType : std::uint8_t {
  kF64,
  kF32,
  kBF16,
  kF16,
  kF8E4M3,  // Has the range of E4M3FN: no infinities, and 448 is the largest number.
  kF8E5M2,
  kI64,
  kI32,
  kU8,
  kBool
};
TRACESTEP_WORDS(DType, "f64", "f32", "bf16", "f16", "f8e4m3", "f8e5m2", "i64", "i32", "u8", "bool");

// Returns the bytes of an element.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64: return 8;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kBF16:
    case DType::kF16: return 2;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kU8:
    case DType::kBool: return 1;
  }
  return 0;
}

constexpr bool is_floating(DType dtype) {
  return dtype <= DType::kF8E5M2;
}
// True for the two 8-bit floating types (base/float8.h), which only scaled products and casts take
// as operands.
constexpr bool is_float8(DType dtype) {
  return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2;
}
// True for the two 16-bit floating types, which are stored narrow and computed in float32.
constexpr bool is_low_precision(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16;
}
constexpr bool is_integer(DType dtype) {
  return dtype > DType::kF8E5M2 && dtype < DType::kBool;
}

// The short name used in programs and tables: "f32", "bf16", "i64", "bool".

}  // namespace tracestep
