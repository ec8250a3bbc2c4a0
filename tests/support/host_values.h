// Tensors of tests: random values, conversion to and from double, and the size of a rounding.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/host_tensor.h"
#include "ir/program.h"

namespace tracestep::testing {

std::vector<double> to_doubles(const TensorView& tensor);

// A tensor of the values, rounded to nearest even (integers towards zero, booleans to 0 or 1).
HostTensor from_doubles(DType dtype, const Shape& shape, std::span<const double> values);
HostTensor converted(const TensorView& tensor, DType dtype);

// A tensor of values uniform in [low, high], by the name alone; whole numbers for integers, 0 or 1
// for booleans (both, where the range holds both).
HostTensor random_tensor(const Type& type, std::string_view name, double low = -2.0,
                         double high = 2.0);

// The distance to the next number of `dtype` above |x|; 1 for integers.
double ulp(DType dtype, double x);

// The largest |a - b|; infinite when only one of two is NaN, and for different sizes.
double max_difference(std::span<const double> a, std::span<const double> b);
double max_abs(std::span<const double> values);

}  // namespace tracestep::testing
