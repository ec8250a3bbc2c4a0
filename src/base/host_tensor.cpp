#include "base/host_tensor.h"

#include "base/error.h"

namespace tracestep {
namespace {

template <class T>
double wide(T x) {
  if constexpr (std::is_class_v<T>) {
    return static_cast<double>(to_float(x));
  } else {
    return static_cast<double>(x);
  }
}

template <class T>
T rounded(double x) {
  if constexpr (std::is_same_v<T, BF16>) {
    return to_bf16(static_cast<float>(x));
  } else if constexpr (std::is_same_v<T, F16>) {
    return to_f16(static_cast<float>(x));
  } else if constexpr (std::is_class_v<T>) {
    return to_float8<T>(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}

// Calls `f` with a value of the type that holds elements of a floating `dtype`.
template <class F>
void with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::kF64: return f(double{});
    case DType::kF32: return f(float{});
    case DType::kBF16: return f(BF16{});
    case DType::kF16: return f(F16{});
    case DType::kF8E4M3: return f(F8E4M3{});
    case DType::kF8E5M2: return f(F8E5M2{});
    default: TRACESTEP_CHECK(false, "{} is no floating type", name_of(dtype));
  }
}

}  // namespace

void HostTensor::check_access(bool same_type, std::size_t size) const {
  TRACESTEP_CHECK(same_type, "a tensor of {} used as another type", name_of(dtype));
  TRACESTEP_CHECK(bytes.size() == size, "{} bytes where shape {} of {} has {}", size, shape.str(),
                  name_of(dtype), bytes.size());
}

HostTensor as_dtype(const TensorView& tensor, DType to) {
  if (tensor.dtype == to) return tensor.copy();
  HostTensor out = HostTensor::zeros(to, tensor.shape);
  with_type(tensor.dtype, [&](auto from) {
    with_type(to, [&, from](auto held) mutable {
      const std::byte* at = tensor.bytes.data();
      for (auto& x : out.as<decltype(held)>()) {
        std::memcpy(&from, at, sizeof from);  // a view of a file may lie at any address
        x = rounded<decltype(held)>(wide(from));
        at += sizeof from;
      }
    });
  });
  return out;
}

HostTensor widened(const TensorView& tensor) {
  return is_floating(tensor.dtype) ? as_dtype(tensor, DType::kF64) : tensor.copy();
}

}  // namespace tracestep
