#include "base/host_tensor.h"

#include "base/error.h"

namespace tracestep {
namespace {

template <class T, class Convert>
HostTensor each_widened(const TensorView& tensor, Convert convert) {
  HostTensor out = HostTensor::zeros(DType::kF64, tensor.shape);
  const std::byte* from = tensor.bytes.data();
  for (double& x : out.as<double>()) {
    T value;
    std::memcpy(&value, from, sizeof(T));  // a view of a file may lie at any address
    x = convert(value);
    from += sizeof(T);
  }
  return out;
}

template <class T, class Convert>
HostTensor each_narrowed(const TensorView& tensor, DType to, Convert convert) {
  HostTensor out = HostTensor::zeros(to, tensor.shape);
  const std::byte* from = tensor.bytes.data();
  for (T& x : out.as<T>()) {
    float value;
    std::memcpy(&value, from, sizeof value);
    x = convert(value);
    from += sizeof value;
  }
  return out;
}

}  // namespace

void HostTensor::check_access(bool same_type, std::size_t size) const {
  TRACESTEP_CHECK(same_type, "a tensor of {} used as another type", name_of(dtype));
  TRACESTEP_CHECK(bytes.size() == size, "{} bytes where shape {} of {} has {}", size, shape.str(),
                  name_of(dtype), bytes.size());
}

HostTensor widened(const TensorView& tensor) {
  const auto from_float = [](float x) { return static_cast<double>(x); };
  const auto from_half = [](auto x) { return static_cast<double>(to_float(x)); };
  switch (tensor.dtype) {
    case DType::kF32: return each_widened<float>(tensor, from_float);
    case DType::kBF16: return each_widened<BF16>(tensor, from_half);
    case DType::kF16: return each_widened<F16>(tensor, from_half);
    default: return tensor.copy();
  }
}

HostTensor narrowed(const TensorView& tensor, DType to) {
  TRACESTEP_CHECK(tensor.dtype == DType::kF32 && is_low_precision(to), "{} narrowed to {}",
                  name_of(tensor.dtype), name_of(to));
  return to == DType::kBF16 ? each_narrowed<BF16>(tensor, to, to_bf16)
                            : each_narrowed<F16>(tensor, to, to_f16);
}

}  // namespace tracestep
