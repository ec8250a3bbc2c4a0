// Precision: how a model's numbers are stored and what its matrix products run in.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace tracestep {

struct Precision {
  DType parameters = DType::kF32;
  // Mixed precision: the low-precision dtype that the `autocast` pass uses, over wider parameters.
  std::optional<DType> autocast = {};
  // float32 products of operands rounded to 10 bits (TensorFloat-32), on a GPU that has them.
  bool tf32 = false;
  // float32 products as three products of float16 parts, on a GPU of the Hopper generation
  // (passes/by_parts.cpp).
  bool split = false;
  // Products of the layers in 8 bits (passes/quantize.cpp); the others as autocast makes them.
  bool float8 = false;

  friend bool operator==(const Precision&, const Precision&) = default;
};

// "fp32", "tf32", "fp32-split", "bf16" and "fp16" (autocast over float32 parameters), "fp8" (bf16
// with products of 8 bits), "bf16-pure" and "fp16-pure" (everything stored so).
const std::vector<std::string>& precision_names();
// Error{kUsage} naming `where` and the closest name when there is no such precision.
Precision parse_precision(std::string_view where, std::string_view name);
// The inverse of parse_precision().
std::string name_of(const Precision& precision);

}  // namespace tracestep
