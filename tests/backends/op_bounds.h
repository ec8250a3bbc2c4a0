// How far a result may be from the float64 answer, by the bound of its op's record. Each function
// returns what is wrong in words; empty: nothing.
#pragma once

#include <string>
#include <vector>

#include "backends/op_cases.h"
#include "base/host_tensor.h"

namespace tracestep::testing {

// The answer, rounded to the result's dtype.
std::string exact_fault(const HostTensor& actual, const HostTensor& answer);

// Each element within a bound of its own: one rounding of the result, plus 16·2^-24 of its terms.
std::string terms_fault(const HostTensor& actual, const std::vector<double>& answer,
                        const std::vector<double>& terms);

// Each element the answer, or one of the two numbers of its dtype on either side of it.
std::string beside_fault(const HostTensor& actual, const std::vector<double>& answer);

// No worse than twice what the op's parts do in the same dtype, plus `floor` and half a rounding of
// the largest element, for parts that happen to be exact.
std::string parts_fault(const HostTensor& actual, const HostTensor& parts,
                        const std::vector<double>& answer, double floor);

}  // namespace tracestep::testing
