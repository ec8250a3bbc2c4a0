// Times with how far they spread, as sentences and tables print them. A deviation stands behind a
// mean and an interval behind a median; nothing else prints such a pair.
#pragma once

#include <string>

namespace tracestep {

// "25.4 ± 0.9 ms": a mean of samples and their standard deviation; "25.40 ms" for a deviation that
// is not known (NaN).
std::string mean_and_deviation(double mean_ms, double deviation_ms);
// "43 ms (28 to 64)": a time that is known to two digits, such as a median, and the interval in
// which it may lie.
std::string time_and_band(double ms, double low_ms, double high_ms);

// Formats `value` with the fmt specification `digits`, with more digits if a number other than zero
// would otherwise print as zero.
std::string not_zero(double value, const std::string& digits);

}  // namespace tracestep
