#include "support/host_values.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"

namespace tracestep::testing {
namespace {

// Reads element `i` of a tensor of any dtype as a double.
double read_element(const TensorView& t, std::size_t i) {
  const std::byte* at = t.bytes.data() + i * size_of(t.dtype);
  const auto load = [at](auto value) {
    std::memcpy(&value, at, sizeof(value));
    return value;
  };
  switch (t.dtype) {
    case DType::kF64: return load(double{});
    case DType::kF32: return static_cast<double>(load(float{}));
    case DType::kBF16: return static_cast<double>(to_float(load(BF16{})));
    case DType::kF16: return static_cast<double>(to_float(load(F16{})));
    case DType::kF8E4M3: return static_cast<double>(to_float(load(F8E4M3{})));
    case DType::kF8E5M2: return static_cast<double>(to_float(load(F8E5M2{})));
    case DType::kI64: return static_cast<double>(load(std::int64_t{}));
    case DType::kI32: return static_cast<double>(load(std::int32_t{}));
    case DType::kU8:
    case DType::kBool: return static_cast<double>(load(std::uint8_t{}));
  }
  return 0;
}

void write_element(HostTensor& t, std::size_t i, double x) {
  switch (t.dtype) {
    case DType::kF64: t.as<double>()[i] = x; break;
    case DType::kF32: t.as<float>()[i] = static_cast<float>(x); break;
    case DType::kBF16: t.as<BF16>()[i] = to_bf16(static_cast<float>(x)); break;
    case DType::kF16: t.as<F16>()[i] = to_f16(static_cast<float>(x)); break;
    case DType::kF8E4M3: t.as<F8E4M3>()[i] = to_float8<F8E4M3>(static_cast<float>(x)); break;
    case DType::kF8E5M2: t.as<F8E5M2>()[i] = to_float8<F8E5M2>(static_cast<float>(x)); break;
    case DType::kI64: t.as<std::int64_t>()[i] = static_cast<std::int64_t>(x); break;
    case DType::kI32: t.as<std::int32_t>()[i] = static_cast<std::int32_t>(x); break;
    case DType::kU8: t.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(x); break;
    case DType::kBool: t.as<std::uint8_t>()[i] = x != 0 ? 1 : 0; break;
  }
}

struct Format {
  int fraction_bits;
  int min_exponent;  // of the smallest normal number
};

Format format_of(DType dtype) {
  switch (dtype) {
    case DType::kF64: return {52, -1022};
    case DType::kF32: return {23, -126};
    case DType::kBF16: return {7, -126};
    case DType::kF8E4M3: return {3, -6};
    case DType::kF8E5M2: return {2, -14};
    default: return {10, -14};
  }
}

}  // namespace

std::vector<double> to_doubles(const TensorView& tensor) {
  std::vector<double> out(static_cast<std::size_t>(tensor.count()));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = read_element(tensor, i);
  return out;
}

HostTensor from_doubles(DType dtype, const Shape& shape, std::span<const double> values) {
  HostTensor out = HostTensor::zeros(dtype, shape);
  TRACESTEP_CHECK(static_cast<std::int64_t>(values.size()) == out.count(), "{} values for {}",
                  values.size(), shape.str());
  for (std::size_t i = 0; i < values.size(); ++i) write_element(out, i, values[i]);
  return out;
}

HostTensor converted(const TensorView& tensor, DType dtype) {
  return from_doubles(dtype, tensor.shape, to_doubles(tensor));
}

HostTensor random_tensor(const Type& type, std::string_view name, double low, double high) {
  const CounterRng rng(7, name);
  std::vector<double> values(static_cast<std::size_t>(type.count()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (type.dtype == DType::kBool) {
      const bool either = low <= 0.0 && high >= 1.0;
      values[i] = either ? static_cast<double>(rng.below(i, 2)) : static_cast<double>(low > 0.0);
    } else if (is_integer(type.dtype)) {
      const auto choices = static_cast<std::uint64_t>(high - low) + 1;
      values[i] = low + static_cast<double>(rng.below(i, choices));
    } else {
      values[i] = low + (high - low) * rng.uniform(i);
    }
  }
  return from_doubles(type.dtype, type.shape, values);
}

double ulp(DType dtype, double x) {
  if (!is_floating(dtype)) return 1.0;
  const Format format = format_of(dtype);
  const int exponent = x == 0.0 || !std::isfinite(x) ? format.min_exponent : std::ilogb(x);
  return std::ldexp(1.0, std::max(exponent, format.min_exponent) - format.fraction_bits);
}

double max_difference(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double difference = std::abs(a[i] - b[i]);
    if (!(difference <= worst)) {
      worst = std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
    }
  }
  return worst;
}

double max_abs(std::span<const double> values) {
  double worst = 0;
  for (double x : values) worst = std::max(worst, std::abs(x));
  return worst;
}

}  // namespace tracestep::testing
