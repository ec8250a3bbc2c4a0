#include "base/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "base/error.h"

namespace tracestep {
namespace {

constexpr std::size_t kMaxQuoted = 40;

// The text as seen, safe to print: shortened, and without control characters.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text.substr(0, kMaxQuoted)) {
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  if (text.size() > kMaxQuoted) out += "...";
  return out + "\"";
}

template <class T>
std::string range_hint(const char* kind, T min, T max) {
  const bool has_min = min > std::numeric_limits<T>::lowest();
  const bool has_max = max < std::numeric_limits<T>::max();
  if (has_min && has_max) return fmt::format("give {} from {} to {}", kind, min, max);
  if (has_min) return fmt::format("give {} of at least {}", kind, min);
  if (has_max) return fmt::format("give {} of at most {}", kind, max);
  return fmt::format("give {}", kind);
}

// from_chars also takes "inf", "nan" and "infinity"; a number starts with a digit or a point.
bool starts_like_number(std::string_view text) {
  if (!text.empty() && text[0] == '-') text.remove_prefix(1);
  return !text.empty() && (text[0] == '.' || (text[0] >= '0' && text[0] <= '9'));
}

template <class T>
T parse_number(const std::string& where, std::string_view text, T min, T max, const char* kind) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  const auto fail = [&](const char* problem) {
    throw Error(ErrorCode::kUsage, where, quoted(text) + problem, range_hint(kind, min, max));
  };
  if (text.empty() || !starts_like_number(text) || result.ec == std::errc::invalid_argument ||
      result.ptr != end) {
    fail(std::is_integral_v<T> ? " is not a whole number" : " is not a number");
  }
  if (result.ec != std::errc()) fail(" does not fit into 64 bits");
  // -0 is a typing slip wherever negative values are not allowed.
  if (value < min || value > max || (value == T{0} && text[0] == '-' && min >= T{0})) {
    fail(" is out of range");
  }
  return value;
}

struct Scale {
  double factor;
  const char* unit;
};

// The value over the largest scale that leaves at least 1 after rounding to two digits.
std::string scaled(double value, std::span<const Scale> scales, const char* base_unit) {
  const double magnitude = std::abs(value);
  for (const Scale& scale : scales) {
    if (magnitude >= scale.factor * 0.999995) {
      return fmt::format("{:.2f} {}", value / scale.factor, scale.unit);
    }
  }
  const bool whole = value == std::floor(value);
  return fmt::format("{:.{}f}{}", value, whole ? 0 : 2, base_unit);
}

constexpr double kKi = 1024.0;
constexpr std::array<Scale, 5> kByteScales = {{{kKi * kKi * kKi * kKi * kKi, "PiB"},
                                               {kKi * kKi * kKi * kKi, "TiB"},
                                               {kKi * kKi * kKi, "GiB"},
                                               {kKi * kKi, "MiB"},
                                               {kKi, "KiB"}}};
constexpr std::array<Scale, 4> kCountScales = {{{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "k"}}};
constexpr std::array<Scale, 6> kFlopScales = {{{1e18, "EFLOP"},
                                               {1e15, "PFLOP"},
                                               {1e12, "TFLOP"},
                                               {1e9, "GFLOP"},
                                               {1e6, "MFLOP"},
                                               {1e3, "kFLOP"}}};

// The power of two a byte unit stands for, or -1.
int byte_shift(std::string_view unit) {
  if (unit.empty() || unit == "B") return 0;
  if (unit == "KiB") return 10;
  if (unit == "MiB") return 20;
  if (unit == "GiB") return 30;
  if (unit == "TiB") return 40;
  return -1;
}

[[noreturn]] void fail_bytes(const std::string& where, std::string_view text, const char* problem,
                             std::string hint) {
  throw Error(ErrorCode::kUsage, where, quoted(text) + problem, std::move(hint));
}

}  // namespace

std::int64_t parse_int(const std::string& where, std::string_view text, std::int64_t min,
                       std::int64_t max) {
  return parse_number<std::int64_t>(where, text, min, max, "a whole number");
}

double parse_real(const std::string& where, std::string_view text, double min, double max) {
  return parse_number<double>(where, text, min, max, "a number");
}

std::int64_t parse_bytes(const std::string& where, std::string_view text) {
  static const std::string kHint = "give bytes, or a number with KiB, MiB, GiB or TiB, as 40GiB";
  const std::size_t digits = text.find_first_not_of("0123456789.");
  const std::string_view number = text.substr(0, digits);
  const std::string_view unit = digits == std::string_view::npos ? "" : text.substr(digits);
  const int shift = byte_shift(unit);
  if (number.empty()) fail_bytes(where, text, " is not a size", kHint);
  if (shift < 0) {
    const std::string first(unit.substr(0, 1));
    const bool decimal = unit.size() <= 2 && std::string_view("KMGTkmgt").find(first) < 8;
    const char letter = static_cast<char>(first[0] & ~0x20);
    fail_bytes(where, text, decimal ? " has an ambiguous unit" : " is not a size",
               decimal ? fmt::format("write {0}{1}iB (powers of two)", number, letter) : kHint);
  }
  // Whole numbers stay exact; fractions have fewer digits than a double.
  if (number.find('.') == std::string_view::npos) {
    std::int64_t value = 0;
    const auto result = std::from_chars(number.data(), number.data() + number.size(), value);
    if (result.ec != std::errc() || value > (std::numeric_limits<std::int64_t>::max() >> shift)) {
      fail_bytes(where, text, " is more than 63 bits of bytes", "give a smaller size");
    }
    return value << shift;
  }
  const double value = parse_real(where, number, 0.0);
  const double bytes = std::ldexp(value, shift);
  if (bytes >= 0x1p63) {
    fail_bytes(where, text, " is more than 63 bits of bytes", "give a smaller size");
  }
  return static_cast<std::int64_t>(bytes);
}

std::string format_bytes(std::int64_t bytes) {
  return scaled(static_cast<double>(bytes), kByteScales, " B");
}

std::string format_duration_ms(double ms) {
  const double magnitude = std::abs(ms);
  if (!std::isfinite(ms)) return "-";
  if (magnitude >= 120e3) {
    const auto seconds = std::llround(ms / 1e3);
    return fmt::format("{} min {:02d} s", seconds / 60, std::abs(seconds % 60));
  }
  if (magnitude >= 1e3) return fmt::format("{:.2f} s", ms / 1e3);
  const auto digits = [](double v) { return std::abs(v) >= 100 ? 1 : std::abs(v) >= 10 ? 2 : 3; };
  if (magnitude >= 1 || ms == 0) return fmt::format("{:.{}f} ms", ms, digits(ms));
  if (magnitude >= 1e-3) return fmt::format("{:.{}f} µs", ms * 1e3, digits(ms * 1e3));
  if (magnitude >= 1e-6) return fmt::format("{:.0f} ns", ms * 1e6);
  return fmt::format("{:.1g} ns", ms * 1e6);
}

std::string format_count(double count) {
  return scaled(count, kCountScales, "");
}

std::string format_flops(double flops) {
  return scaled(flops, kFlopScales, " FLOP");
}

std::string format_flop_rate(double flops_per_second) {
  return format_flops(flops_per_second) + "/s";
}

}  // namespace tracestep
