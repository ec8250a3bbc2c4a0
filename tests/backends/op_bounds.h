// How far a result may be from the float64 answer, by the bound of its op's record. Each function
// returns what is wrong in words; empty: nothing.
#pragma once

#include <string>
#include <vector>

#include "backends/op_cases.h"
#include "base/host_tensor.h"

namespace tracestep::testing {

// Holds the result to the answer, rounded to the result's dtype.
std::string exact_fault(const HostTensor& actual, const HostTensor& answer);

// Holds each element to a bound of its own: one rounding of it, plus 16·2^-24 of its terms.
std::string terms_fault(const HostTensor& actual, const std::vector<double>& answer,
                        const std::vector<double>& terms);

// Holds each element to the answer, or one of the two numbers of its dtype on either side of that.
std::string beside_fault(const HostTensor& actual, const std::vector<double>& answer);

// Holds the result to twice the error of the op's parts in the same dtype, plus `floor` and half a
// rounding of the largest element, for parts that happen to be exact.
std::string parts_fault(const HostTensor& actual, const HostTensor& parts,
                        const std::vector<double>& answer, double floor);

}  // namespace tracestep::testing
