// A figure of a page as it is printed.
#pragma once

#include <string_view>

#include "lab/report/quantity.h"

namespace tracestep::pages {

// As a unit has it: "ms", "± ms" (a mean and its deviation), "bytes", "percent", "%" (four digits),
// "+percent", "factor", "count", "flops", "tflops", "ratio", or digits as fmt has them (".3g").
Text shown(const Quantity& quantity, std::string_view unit);

}  // namespace tracestep::pages
