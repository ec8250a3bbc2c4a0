#include "base/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "base/error.h"

namespace tracestep {
namespace {

constexpr std::size_t kMaxQuoted = 40;

// Returns the text in quotes, safe to print: shortened, and without control characters.
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

// True for a digit or a point, after "-": from_chars also takes "inf", "nan" and "infinity".
bool starts_like_number(std::string_view text) {
  if (!text.empty() && text[0] == '-') text.remove_prefix(1);
  return !text.empty() && (text[0] == '.' || (text[0] >= '0' && text[0] <= '9'));
}

template <class T>
T parse_number(const About& where, std::string_view text, T min, T max, const char* kind) {
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

// Returns the value, with two decimals, in the largest unit of which it has at least 0.999995.
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

// Returns the bytes that a unit stands for; 0: it is no unit. A letter alone is a power of 1024, as
// schedulers of clusters have it.
std::int64_t bytes_of_unit(std::string_view unit) {
  constexpr std::string_view kPrefixes = "KMGT";
  if (unit == "B") return 1;
  const std::size_t power = kPrefixes.find(unit == "kB" ? 'K' : unit[0]) + 1;
  const bool is_binary = unit.substr(1) == "iB" || (unit.size() == 1 && power > 0);
  if (power == 0 || (!is_binary && unit.substr(1) != "B")) return 0;
  std::int64_t out = 1;
  for (std::size_t i = 0; i < power; ++i) out *= is_binary ? 1024 : 1000;
  return out;
}

// Returns the power of a thousand that the last letter of a count stands for; 0: it is no unit.
int power_of(char letter) {
  switch (letter) {
    case 'k':
    case 'K': return 1;
    case 'M': return 2;
    case 'G':
    case 'B': return 3;
    case 'T': return 4;
    default: return 0;
  }
}

// A decimal number: `digits` * 10^`exponent`.
struct Decimal {
  std::int64_t digits = 0;
  int exponent = 0;
};

// Reads "1.5" or "2e3"; nullopt for any other text, and for more digits than 64 bits hold.
std::optional<Decimal> decimal_of(std::string_view text) {
  const std::size_t e = std::min(text.find_first_of("eE"), text.size());
  std::string digits(text.substr(0, e));
  Decimal out;
  if (const std::size_t point = digits.find('.'); point != std::string::npos) {
    out.exponent = -static_cast<int>(digits.size() - point - 1);
    digits.erase(point, 1);
  }
  const auto read = [](std::string_view number, auto& to) {
    const auto result = std::from_chars(number.data(), number.data() + number.size(), to);
    return result.ec == std::errc() && result.ptr == number.data() + number.size();
  };
  int given = 0;
  if (!starts_like_number(text) || !read(digits, out.digits)) return std::nullopt;
  if (e < text.size()) {
    const std::size_t sign = e + 1 < text.size() && text[e + 1] == '+' ? 1 : 0;
    if (!read(text.substr(e + 1 + sign), given) || std::abs(given) > 18) return std::nullopt;
  }
  out.exponent += given;
  return out;
}

struct Product {
  std::int64_t whole = 0;  // towards zero
  bool is_exact = true;
};

// Returns the number times `factor`, rounded towards zero; nullopt: it is too large.
std::optional<Product> product(Decimal number, std::int64_t factor) {
  __extension__ using Wide = __int128;
  constexpr Wide kMost = std::numeric_limits<std::int64_t>::max();
  Wide value = Wide{number.digits} * factor;
  bool is_exact = true;
  for (; number.exponent < 0 && value != 0; ++number.exponent) {
    is_exact = is_exact && value % 10 == 0;
    value /= 10;
  }
  const auto fits = [&] { return -kMost <= value && value <= kMost; };
  for (; number.exponent > 0 && fits(); --number.exponent) value *= 10;
  if (!fits()) return std::nullopt;
  return Product{static_cast<std::int64_t>(value), is_exact};
}

[[noreturn]] void fail_bytes(const About& where, std::string_view text, const char* problem,
                             std::string hint) {
  throw Error(ErrorCode::kUsage, where, quoted(text) + problem, std::move(hint));
}

}  // namespace

std::int64_t parse_int(const About& where, std::string_view text, std::int64_t min,
                       std::int64_t max) {
  return parse_number<std::int64_t>(where, text, min, max, "a whole number");
}

std::int64_t parse_count(const About& where, std::string_view text, std::int64_t min,
                         std::int64_t max, Thousand thousand) {
  const int power = text.empty() ? 0 : power_of(text.back());
  const std::string_view number = text.substr(0, text.size() - (power > 0 ? 1 : 0));
  if (power > 0 || number.find_first_of("eE") != std::string_view::npos) {
    std::int64_t factor = 1;
    for (int i = 0; i < power; ++i) factor *= thousand == Thousand::kBinary ? 1024 : 1000;
    const std::optional<Decimal> decimal = decimal_of(number);
    const std::optional<Product> count = decimal ? product(*decimal, factor) : std::nullopt;
    const bool is_whole = count && count->is_exact;
    if (is_whole && count->whole >= min && count->whole <= max &&
        (count->whole != 0 || text[0] != '-')) {
      return count->whole;
    }
    const bool is_number = is_whole || (decimal && !count);
    throw Error(ErrorCode::kUsage, where,
                quoted(text) + (is_number ? " is out of range" : " is not a whole number"),
                range_hint("a whole number", min, max));
  }
  return parse_int(where, text, min, max);
}

double parse_real(const About& where, std::string_view text, double min, double max) {
  return parse_number<double>(where, text, min, max, "a number");
}

std::int64_t parse_bytes(const About& where, std::string_view text) {
  static const std::string kHint =
      "give a number with KiB, MiB, GiB or TiB (powers of 1024; or K, M, G, T) or kB, MB, GB or TB "
      "(of 1000), as 40GiB";
  const std::size_t digits = text.find_first_not_of("0123456789.");
  const std::string_view number = text.substr(0, digits);
  const std::string_view unit = digits == std::string_view::npos ? "" : text.substr(digits);
  if (number.empty()) fail_bytes(where, text, " is not a size", kHint);
  if (unit.empty()) {
    constexpr std::size_t kMostDigits = 4;  // of what nobody means as bytes
    fail_bytes(where, text, " has no unit",
               number.size() > kMostDigits
                   ? fmt::format("write {}B", number)
                   : fmt::format("{0} bytes? write {0}GiB, {0}MiB or {0}B", number));
  }
  const std::int64_t factor = bytes_of_unit(unit);
  if (factor == 0) {
    const char letter = static_cast<char>(unit[0] & ~0x20);
    const bool is_close = unit.size() <= 3 && std::string_view("KMGT").find(letter) < 4;
    fail_bytes(where, text, " is not a size",
               is_close ? fmt::format("write {0}{1}iB (powers of 1024) or {0}{2}B (of 1000)",
                                      number, letter, letter == 'K' ? 'k' : letter)
                        : kHint);
  }
  const std::optional<Decimal> decimal = decimal_of(number);
  if (!decimal && number.find('.') != number.rfind('.')) {
    fail_bytes(where, text, " is not a size", kHint);
  }
  const std::optional<Product> bytes = decimal ? product(*decimal, factor) : std::nullopt;
  if (!bytes) fail_bytes(where, text, " is more than 63 bits of bytes", "give a smaller size");
  return bytes->whole;
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
