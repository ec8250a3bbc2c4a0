// How numbers are written for people, in tables and in sentences alike.
#pragma once

#include <cstdint>
#include <string>

namespace tracestep {

// Groups digits, "3,406,809,600"; contexts and widths, below ten thousand, stay plain.
std::string grouped(std::int64_t value);

// A value of Column::digits by which numbers have two significant digits: those not known better.
inline constexpr int kTwoDigits = -2;
// Rounds to two digits: "740", "74", "0.74" for 736.6, 73.66 and 0.7366.
std::string two_digits(double value);

}  // namespace tracestep
