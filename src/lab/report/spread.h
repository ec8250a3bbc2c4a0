// Times with how far they spread, as sentences and tables print them. A deviation follows a mean
// and an interval follows a median; nothing else prints such a pair.
#pragma once

#include <string>

namespace tracestep {

// Writes a mean of samples and their standard deviation, "25.4 ± 0.9 ms"; "25.40 ms" for a
// deviation that is not known (NaN).
std::string mean_and_deviation(double mean_ms, double deviation_ms);
// Writes a time that is known to two digits, such as a median, and the interval in which it may
// lie: "43 ms (28 to 64)".
std::string time_and_band(double ms, double low_ms, double high_ms);

// Formats `value` with the fmt specification `digits`, with more digits if a number other than zero
// would otherwise print as zero.
std::string not_zero(double value, const std::string& digits);

}  // namespace tracestep
