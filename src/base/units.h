// Numbers with units, as people write and read them: strict parsing of flag values and short
// human forms for tables and messages. Bytes are shown in powers of two, and say so (KiB, MiB,
// GiB).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "base/error.h"

namespace tracestep {

// Parses a whole number in [min, max]. Errors: kUsage naming `where` (the flag), the text and the
// range, for anything else: `8abc`, `1e3`, ` 4`, `+4`, an empty text, -0, beyond 64 bits.
std::int64_t parse_int(const About& where, std::string_view text,
                       std::int64_t min = std::numeric_limits<std::int64_t>::min(),
                       std::int64_t max = std::numeric_limits<std::int64_t>::max());

// The factor that "k" after a number stands for; M, G or B, and T stand for powers of that factor.
enum class Thousand : std::uint8_t {
  kDecimal,  // --steps 10k: 10,000
  kBinary,   // --context 4k: 4096
};

// Parses a count as people write it: what parse_int() takes, "1e3", "10k", "1.5M". Errors: as
// parse_int, also for what is no whole number, as "1.5" and "1.0001k".
std::int64_t parse_count(const About& where, std::string_view text,
                         std::int64_t min = std::numeric_limits<std::int64_t>::min(),
                         std::int64_t max = std::numeric_limits<std::int64_t>::max(),
                         Thousand thousand = Thousand::kDecimal);

// Parses a finite decimal number in [min, max]. Errors: as parse_int, also for `nan`, `inf`,
// `1e309`, and for -0 where negative numbers are not allowed.
double parse_real(const About& where, std::string_view text,
                  double min = std::numeric_limits<double>::lowest(),
                  double max = std::numeric_limits<double>::max());

// Parses "123B", "512MiB", "24GB" (10^9 each), "1.5GiB" as bytes, rounded down. Throws
// Error{kUsage}, also for a number without a unit, by which people mean gigabytes.
std::int64_t parse_bytes(const About& where, std::string_view text);

// Returns bytes as text: "512 B", "1.50 GiB".
std::string format_bytes(std::int64_t bytes);
// Returns a duration with three or four significant digits: "850 ns", "12.3 µs", "4.56 ms", "1.23
// s", "2 min 03 s".
std::string format_duration_ms(double ms);
// Returns a count as text: "999", "1.23 k", "128.63 M", "3.41 B" (10^9).
std::string format_count(double count);
// Returns floating-point operations as text: "1.23 TFLOP".
std::string format_flops(double flops);
// Returns a rate of floating-point operations as text: "1.23 TFLOP/s".
std::string format_flop_rate(double flops_per_second);

// Returns an exact number of bytes as text, with the largest unit of which it is a whole number:
// "25MiB", "1536KiB", "7B".
std::string exact_bytes(std::int64_t bytes);

}  // namespace tracestep
