#include "exec/executor.h"

namespace tracestep {

void Executor::set_scalar(std::string_view name, double value) {
  const ValueId id = program().find_leaf(name);
  const bool is_wide = id != kNoValue && program().type(id).dtype == DType::kF64;
  const auto narrow = static_cast<float>(value);
  set_input(name, is_wide ? HostTensor::of<double>(DType::kF64, {}, std::span(&value, 1))
                          : HostTensor::of<float>(DType::kF32, {}, std::span(&narrow, 1)));
}

double Executor::scalar(std::string_view name) const {
  const HostTensor value = output(name);
  TRACESTEP_CHECK(value.count() == 1, "output {} is {}", name, value.shape.str());
  switch (value.dtype) {
    case DType::kF64: return value.as<double>()[0];
    case DType::kF32: return static_cast<double>(value.as<float>()[0]);
    case DType::kBF16: return static_cast<double>(to_float(value.as<BF16>()[0]));
    case DType::kF16: return static_cast<double>(to_float(value.as<F16>()[0]));
    default: fail_usage("output", "{} is {}, not floating", name, name_of(value.dtype));
  }
}

}  // namespace tracestep
