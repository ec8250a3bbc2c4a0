// The numbers of an answer. Each knows how it is made from cells of tables, so that it can be
// recomputed by someone else, and how far noise may move it, so that comparisons can mind that.
//
// A formula is text in a small language, in which rows count from 1:
//   cells[3].flops                           a cell; "a name"[3].flops when the name needs quotes
//   median(cells[3].samples_ms)              also min, max, sum, count, of a cell with a list
//   sum(kinds[1,4-6].ms)                     or of a column of several rows
//   count(validity[1-9].verdict, "ok")       how many of the rows say so
//   (a + b)  (a - b)  (a * b)  (a / b)       arithmetic, always in brackets
//   (a ± b)                                  a, of which noise may move b
//   log(a), between(a, b, c)                 natural logarithm; a, which lies between b and c
// A median of samples lies in its 95 % interval (lab/measure/noise.h), anything else from a cell
// is taken as exact.
#pragma once

#include <stdexcept>
#include <string>

#include "base/enum_words.h"
#include "lab/report/statement.h"

namespace tracestep {

// Thrown when the tables do not support an answer; why() names what they lack.
class Unsupported : public std::runtime_error {
 public:
  explicit Unsupported(Text why) : std::runtime_error(why.words()), why_(std::move(why)) {}
  const Text& why() const { return why_; }

 private:
  Text why_;
};

// Throws Unsupported with `why` unless the condition holds.
void require(bool condition, const Text& why);
inline void require(bool condition, const char* why) {
  if (!condition) throw Unsupported(why);
}

// A number with an interval: low <= value <= high. `value` is finite; the bounds may be infinite.
struct Quantity {
  double value = 0, low = 0, high = 0;
  std::string formula;

  // Makes a number that no table holds, because the sentence states it, such as a threshold.
  static Quantity constant(double value);
  // Returns a number that is known exactly. Throws Unsupported when the value is not finite.
  static Quantity exact(double value, std::string formula);
};

Quantity operator+(const Quantity& a, const Quantity& b);
Quantity operator-(const Quantity& a, const Quantity& b);
Quantity operator*(const Quantity& a, const Quantity& b);
Quantity operator*(double a, const Quantity& b);
// Returns the quotient; throws Unsupported when b is 0.
Quantity operator/(const Quantity& a, const Quantity& b);
// Returns the natural logarithm; throws Unsupported unless a is positive.
Quantity log(const Quantity& a);
Quantity plus_minus(const Quantity& a, const Quantity& noise);
Quantity between(const Quantity& a, const Quantity& low, const Quantity& high);

// --- comparisons ---------------------------------------------------------------------------------

enum class Ordering {
  kLess,
  kEqual,    // The two are equal exactly, or the first lies within the asked range.
  kUnclear,  // The intervals of the two overlap, so noise may explain the difference.
  kMore,
};
TRACESTEP_WORDS(Ordering, "<", "=", "~", ">");

// How two quantities compare, as a formula ("a < b", "a = b", "a ~ b": their intervals meet, "a >
// b", "a in [b, c]", several of them joined by "and").
struct Relation {
  Ordering order = Ordering::kUnclear;
  std::string formula;

  bool is(Ordering other) const { return order == other; }
};

Relation compare(const Quantity& a, const Quantity& b);
// Compares with a range. kEqual: a's interval lies in it; kLess, kMore: all on that side.
Relation compare_with_range(const Quantity& a, double low, double high);
// Marks words that are true because of `relation`: the printed claim is checked against it.
Text because(const Relation& relation, Text words);

// --- figures: a quantity as it is printed --------------------------------------------------------

// Prints a time: "3.38 ms". Throws Unsupported for a negative time or one over a century.
Text duration(const Quantity& ms);
Text bytes(const Quantity& count);                // "1.50 GiB". Throws Unsupported beyond 63 bits.
Text percent(const Quantity& percent);            // "12.3 %"; below 1 with a second decimal
Text signed_percent(const Quantity& percent);     // "+12.3 %"
Text decimal(const Quantity& q, int digits = 2);  // "2.00"
Text whole(const Quantity& q);                    // "12"

}  // namespace tracestep
