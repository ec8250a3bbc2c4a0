#include "lab/report/digits.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace tracestep {

std::string grouped(std::int64_t value) {
  constexpr std::int64_t kGroupFrom = 10000;
  std::string text = std::to_string(value);
  if (value > -kGroupFrom && value < kGroupFrom) return text;
  const std::size_t first_digit = value < 0 ? 1 : 0;
  for (std::size_t i = text.size(); i > first_digit + 3;) text.insert(i -= 3, ",");
  return text;
}

std::string two_digits(double value) {
  if (value == 0) return "0";
  int exponent = static_cast<int>(std::floor(std::log10(std::abs(value)))) - 1;
  double digits = std::round(value / std::pow(10.0, exponent));
  if (std::abs(digits) >= 100) {  // 9.96 becomes 10
    digits /= 10;
    ++exponent;
  }
  return fmt::format("{:.{}f}", digits * std::pow(10.0, exponent), std::max(0, -exponent));
}

}  // namespace tracestep
