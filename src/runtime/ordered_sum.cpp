#include "runtime/ordered_sum.h"

#include <type_traits>

#include "base/error.h"
#include "base/half.h"

namespace tracestep {
namespace {

// Converts a stored number to the type in which such numbers are added up.
float widen(BF16 x) {
  return to_float(x);
}
float widen(F16 x) {
  return to_float(x);
}
float widen(float x) {
  return x;
}
double widen(double x) {
  return x;
}
template <class T, class Sum>
T narrow(Sum sum) {
  if constexpr (std::is_same_v<T, BF16>) {
    return to_bf16(sum);
  } else if constexpr (std::is_same_v<T, F16>) {
    return to_f16(sum);
  } else {
    return sum;
  }
}

template <class T>
void add(std::span<const void* const> from, std::int64_t count, void* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    auto sum = widen(static_cast<const T*>(from[0])[i]);
    for (const void* x : from.subspan(1)) sum += widen(static_cast<const T*>(x)[i]);
    static_cast<T*>(out)[i] = narrow<T>(sum);
  }
}

}  // namespace

void add_in_order(DType dtype, std::span<const void* const> from, std::int64_t count, void* out) {
  switch (dtype) {
    case DType::kF64: return add<double>(from, count, out);
    case DType::kF32: return add<float>(from, count, out);
    case DType::kBF16: return add<BF16>(from, count, out);
    case DType::kF16: return add<F16>(from, count, out);
    default: TRACESTEP_CHECK(false, "sums over ranks of {}", name_of(dtype));
  }
}

}  // namespace tracestep
