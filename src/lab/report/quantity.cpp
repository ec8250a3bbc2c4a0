#include "lab/report/quantity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "base/units.h"
#include "lab/report/digits.h"

namespace tracestep {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::string in_brackets(const Quantity& a, const char* op, const Quantity& b) {
  return fmt::format("({} {} {})", a.formula, op, b.formula);
}

// Makes a quantity whose interval spans `corners`; a corner that is NaN (0 · ∞) may be any number.
Quantity spanned(double value, std::array<double, 4> corners, std::string formula) {
  Quantity out = Quantity::exact(value, std::move(formula));
  const bool is_unknown = std::ranges::any_of(corners, [](double c) { return std::isnan(c); });
  const auto [least, most] = std::ranges::minmax(corners);
  out.low = is_unknown ? -kInf : std::min(value, least);
  out.high = is_unknown ? kInf : std::max(value, most);
  return out;
}

Text figure(const Quantity& q, std::string printed) {
  return Text(Piece{std::move(printed), Basis::kFigure, q.formula});
}

// Prints `decimals`, or one significant digit where a value other than zero would read as zero.
std::string fixed(double value, int decimals) {
  std::string out = fmt::format("{:.{}f}", value, decimals);
  const bool reads_zero = out.find_first_of("123456789") == std::string::npos;
  return reads_zero && value != 0.0 ? fmt::format("{:.1g}", value) : out;
}

}  // namespace

void require(bool condition, const Text& why) {
  if (!condition) throw Unsupported(why);
}

Quantity Quantity::constant(double value) {
  return exact(value, fmt::format("{}", value));
}

Quantity Quantity::exact(double value, std::string formula) {
  constexpr double kLargest = 1e308;  // rounded for print, it is still a number
  require(std::abs(value) < kLargest, "a figure that it needs is not finite");
  return {value, value, value, std::move(formula)};
}

Quantity operator+(const Quantity& a, const Quantity& b) {
  return spanned(a.value + b.value,
                 {a.low + b.low, a.low + b.low, a.high + b.high, a.high + b.high},
                 in_brackets(a, "+", b));
}

Quantity operator-(const Quantity& a, const Quantity& b) {
  return spanned(a.value - b.value,
                 {a.low - b.high, a.low - b.high, a.high - b.low, a.high - b.low},
                 in_brackets(a, "-", b));
}

Quantity operator*(const Quantity& a, const Quantity& b) {
  return spanned(a.value * b.value,
                 {a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high},
                 in_brackets(a, "*", b));
}

Quantity operator*(double a, const Quantity& b) {
  return Quantity::constant(a) * b;
}

Quantity operator/(const Quantity& a, const Quantity& b) {
  require(b.value != 0.0, "a ratio that it needs has a divisor of zero");
  const std::string formula = in_brackets(a, "/", b);
  if (b.low <= 0.0 && b.high >= 0.0) {  // noise may take b to 0
    return spanned(a.value / b.value, {-kInf, -kInf, kInf, kInf}, formula);
  }
  return spanned(a.value / b.value,
                 {a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high}, formula);
}

Quantity log(const Quantity& a) {
  require(a.value > 0.0, "a logarithm that it needs is of nothing");
  const double low = a.low > 0.0 ? std::log(a.low) : -kInf, high = std::log(a.high);
  return spanned(std::log(a.value), {low, low, high, high}, fmt::format("log({})", a.formula));
}

Quantity plus_minus(const Quantity& a, const Quantity& noise) {
  const double by = std::abs(noise.value);
  return spanned(a.value, {a.low - by, a.low - by, a.high + by, a.high + by},
                 in_brackets(a, "±", noise));
}

Quantity between(const Quantity& a, const Quantity& low, const Quantity& high) {
  return spanned(a.value, {low.value, low.value, high.value, high.value},
                 fmt::format("between({}, {}, {})", a.formula, low.formula, high.formula));
}

// --- comparisons ---------------------------------------------------------------------------------
// Says how two quantities lie: unclear if intervals overlap, unless both are exact and equal.
Relation compare(const Quantity& a, const Quantity& b) {
  const bool is_exact = a.low == a.high && b.low == b.high;
  const Ordering order = a.low > b.high                   ? Ordering::kMore
                         : a.high < b.low                 ? Ordering::kLess
                         : is_exact && a.value == b.value ? Ordering::kEqual
                                                          : Ordering::kUnclear;
  return {order, fmt::format("{} {} {}", a.formula, name_of(order), b.formula)};
}

Relation compare_with_range(const Quantity& a, double low, double high) {
  const Quantity from = Quantity::constant(low), to = Quantity::constant(high);
  if (a.low >= low && a.high <= high) {
    return {Ordering::kEqual, fmt::format("{} in [{}, {}]", a.formula, from.formula, to.formula)};
  }
  if (a.high < low) return compare(a, from);
  if (a.low > high) return compare(a, to);
  return a.low < low ? compare(a, from) : compare(a, to);  // its interval meets an end of the range
}

Text because(const Relation& relation, Text words) {
  words.rest_on(Basis::kRelation, relation.formula);
  return words;
}

// --- figures -------------------------------------------------------------------------------------

Text duration(const Quantity& ms) {
  constexpr double kCenturyMs = 3.2e12;
  require(ms.value >= 0.0 && ms.value < kCenturyMs, "a time that it needs is negative or endless");
  return figure(ms, format_duration_ms(ms.value));
}

Text bytes(const Quantity& count) {
  require(std::abs(count.value) < 0x1p63, "a number of bytes that it needs is beyond any memory");
  return figure(count, format_bytes(std::llround(count.value)));
}

Text percent(const Quantity& percent) {
  const bool is_small = percent.value != 0.0 && std::abs(percent.value) < 1.0;
  return figure(percent, fixed(percent.value, is_small ? 2 : 1) + " %");
}

Text signed_percent(const Quantity& percent) {
  const char* const sign = std::signbit(percent.value) ? "" : "+";
  return figure(percent, sign + fixed(percent.value, 1) + " %");
}

Text decimal(const Quantity& q, int digits) {
  return figure(q, fixed(q.value, digits));
}

Text whole(const Quantity& q) {
  constexpr double kWhole = 1e15;  // up to which a double has every whole number
  if (std::abs(q.value) < 0.5 || std::abs(q.value) >= kWhole) return figure(q, fixed(q.value, 0));
  return figure(q, grouped(std::llround(q.value)));
}

}  // namespace tracestep
