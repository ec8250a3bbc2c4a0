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
  // Mixed precision: the dtype that the `autocast` pass uses for products, while parameters are
  // wider; nullopt: off.
  std::optional<DType> autocast = {};
  // True: float32 products round their operands to 10 mantissa bits (TensorFloat-32), on a GPU that
  // has this.
  bool tf32 = false;
  // True: float32 products are computed as three products of float16 parts, on a Hopper GPU
  // (passes/by_parts.cpp).
  bool split = false;
  // True: products in the layers have 8-bit operands (passes/quantize.cpp); other products follow
  // autocast.
  bool float8 = false;

  friend bool operator==(const Precision&, const Precision&) = default;
};

// Returns the names: "fp32", "tf32", "fp32-split", "bf16" and "fp16" (autocast over float32
// parameters), "fp8" (bf16 with 8-bit products), "bf16-pure" and "fp16-pure" (everything is stored
// in that type).
const std::vector<std::string>& precision_names();
// Returns the precision of this name; if none has it, Error{kUsage} with `where` and the closest.
Precision parse_precision(std::string_view where, std::string_view name);
// Returns the name of the precision, which parse_precision() reads.
std::string name_of(const Precision& precision);

}  // namespace tracestep
