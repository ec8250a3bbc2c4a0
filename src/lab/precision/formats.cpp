// The table of number formats, from the types themselves.
#include <cmath>
#include <limits>

#include "base/half.h"
#include "lab/precision/tables.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

struct FormatFacts {
  std::string name;
  int bits = 0, exponent_bits = 0, mantissa_bits = 0;
  double max = 0, min_normal = 0, min_subnormal = 0, spacing_at_one = 0;
  double largest_square = 0;  // the largest number with a finite square
  double epsilon_as = 0;      // the nearest number to the usual 1e-5
};

constexpr double kEpsilonOfNorms = 1e-5;

// Finds the facts of a 16-bit type by trying all of its non-negative patterns.
template <class T, class Round>
FormatFacts tried(std::string name, Round&& round) {
  FormatFacts f{.name = std::move(name), .bits = 8 * static_cast<int>(sizeof(T))};
  f.min_subnormal = std::numeric_limits<double>::infinity();
  int from_one_to_two = 0;
  double previous = 0, previous_step = 0;
  for (std::uint32_t bits = 0; bits < 0x8000u; ++bits) {
    const auto x = static_cast<double>(to_float(T{static_cast<std::uint16_t>(bits)}));
    if (!std::isfinite(x)) continue;
    if (x >= 1.0 && x < 2.0) ++from_one_to_two;
    if (x > 0.0) f.min_subnormal = std::min(f.min_subnormal, x);
    // Spacing doubles at every power of two but the first: below it numbers are subnormal.
    const double step = x - previous;
    if (bits > 1 && step == 2 * previous_step && f.min_normal == 0) f.min_normal = previous / 2;
    if (previous == 1.0) f.spacing_at_one = step;
    f.max = std::max(f.max, x);
    const float square = static_cast<float>(x) * static_cast<float>(x);
    if (std::isfinite(to_float(round(square)))) f.largest_square = std::max(f.largest_square, x);
    previous = x;
    previous_step = step;
  }
  f.mantissa_bits = std::ilogb(static_cast<double>(from_one_to_two));
  f.exponent_bits = f.bits - 1 - f.mantissa_bits;
  f.epsilon_as = static_cast<double>(to_float(round(static_cast<float>(kEpsilonOfNorms))));
  return f;
}

// The facts of a type that the compiler describes.
template <class T>
FormatFacts described(std::string name) {
  using L = std::numeric_limits<T>;
  FormatFacts f{.name = std::move(name), .bits = 8 * static_cast<int>(sizeof(T))};
  f.mantissa_bits = L::digits - 1;
  f.exponent_bits = f.bits - 1 - f.mantissa_bits;
  f.max = static_cast<double>(L::max());
  f.min_normal = static_cast<double>(L::min());
  f.min_subnormal = static_cast<double>(L::denorm_min());
  f.spacing_at_one = static_cast<double>(L::epsilon());
  T x = std::sqrt(L::max());
  while (std::isfinite(x * x)) x = std::nextafter(x, L::max());
  while (!std::isfinite(x * x)) x = std::nextafter(x, T{0});
  f.largest_square = static_cast<double>(x);
  f.epsilon_as = static_cast<double>(static_cast<T>(kEpsilonOfNorms));
  return f;
}

// The facts of float32 with the last 13 bits of the mantissa rounded away, which products read but
// nothing stores.
FormatFacts tensor_float() {
  FormatFacts f = described<float>("tf32 (in products)");
  constexpr int kBits = 10;
  f.mantissa_bits = kBits;
  f.bits = 1 + f.exponent_bits + kBits;
  f.spacing_at_one = std::ldexp(1.0, -kBits);
  f.max = std::ldexp(2.0 - f.spacing_at_one, std::numeric_limits<float>::max_exponent - 1);
  f.min_subnormal = std::ldexp(f.min_normal, -kBits);
  // 2^63 has a square in float32 arithmetic, and so have all numbers of 10 bits below 2^64.
  f.largest_square = std::ldexp(2.0 - f.spacing_at_one, 63);
  const double ulp = std::ldexp(f.spacing_at_one, std::ilogb(kEpsilonOfNorms));
  f.epsilon_as = std::nearbyint(kEpsilonOfNorms / ulp) * ulp;
  return f;
}

Fields<FormatFacts> format_fields() {
  using F = FormatFacts;
  return {
      {col::format, &F::name},
      {int_column("bits"), &F::bits},
      {int_column("exponent_bits", "exponent"), &F::exponent_bits},
      {int_column("mantissa_bits", "mantissa", "stored bits"), &F::mantissa_bits},
      {real_column("max", "largest", "", -1), &F::max},
      {real_column("min_normal", "least normal", "", -1), &F::min_normal},
      {real_column("min_subnormal", "least", "", -1, "subnormal"), &F::min_subnormal},
      {real_column("spacing_at_one", "spacing at 1", "", -1), &F::spacing_at_one},
      {real_column("largest_square", "squares up to", "", -1,
                   "the largest number with a finite square"),
       &F::largest_square},
      {real_column("epsilon_as", "1e-5 becomes", "", 9), &F::epsilon_as},
      {bool_column("epsilon_is_normal", "normal", "whether 1e-5 keeps all bits of the mantissa"),
       [](const F& f) { return f.epsilon_as >= f.min_normal; }}};
}

}  // namespace

Table format_table() {
  const FormatFacts formats[] = {described<double>("f64"), described<float>("f32"), tensor_float(),
                                 tried<BF16>("bf16", to_bf16), tried<F16>("f16", to_f16)};
  Table table = table_of("formats", "Number formats", format_fields(), formats);
  table.notes.push_back(
      "16-bit formats: found by converting all 65,536 patterns; f32 and f64: as the compiler "
      "describes them");
  return table;
}

}  // namespace tracestep
