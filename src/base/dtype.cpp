#include "base/dtype.h"

#include "base/indexed.h"

namespace tracestep {

std::string_view name_of(DType dtype) {
  return word_of<DType::kBool>(
      dtype, {"f64", "f32", "bf16", "f16", "f8e4m3", "f8e5m2", "i64", "i32", "u8", "bool"});
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (DType dtype : kAllDTypes) {
    if (name == name_of(dtype)) return dtype;
  }
  return std::nullopt;
}

}  // namespace tracestep
