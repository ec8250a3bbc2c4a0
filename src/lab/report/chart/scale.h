// Axes as numbers: round ticks, linear and logarithmic scales, and the texts of ticks. Ticks are
// those of d3 (tests/lab/report/scale_test.cpp holds them against its own on random ranges).
#pragma once

#include <string>
#include <vector>

namespace tracestep {

// A value on an axis; ticks without a label are drawn as grid lines only.
struct Tick {
  double value = 0;
  bool is_labelled = true;
};

// Returns multiples of 1, 2 or 5 times a power of ten in [low, high], about `count` of them; the
// only value when low == high, nothing when the range is not finite or `count` is not positive.
std::vector<double> linear_ticks(double low, double high, int count);

// Returns powers of `base` (10 or 2) in [low, high] and, where there is room, their multiples, of
// which about `count` are labelled. 0 < low <= high.
std::vector<Tick> log_ticks(double low, double high, int base, int count);

enum class AxisUnit { kNumber, kBytes };

// Maps values to pixels. A logarithmic scale needs positive bounds.
class Scale {
 public:
  struct Range {
    double low = 0, high = 1;
  };
  Scale(Range values, Range pixels, bool is_log, AxisUnit unit = AxisUnit::kNumber);

  double at(double value) const;
  // Makes about `count` labelled ticks; of bytes at round numbers of KiB, MiB, … or powers of two.
  std::vector<Tick> ticks(int count) const;
  bool is_log() const { return is_log_; }
  const Range& values() const { return values_; }

 private:
  Range values_, pixels_;
  bool is_log_;
  AxisUnit unit_;
};

// Writes a value as short as it allows: "0.5", "20k", "1e-06", "1.5 GiB".
std::string tick_text(double value, AxisUnit unit);

}  // namespace tracestep
