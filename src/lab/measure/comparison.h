// Compares two lists of times: the ratio of their medians, how uncertain it is, and what may be
// said of it.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "base/enum_words.h"
#include "lab/measure/bootstrap.h"
#include "lab/measure/processes.h"

namespace tracestep {

enum class Change {
  kSame,     // The interval of the ratio lies within the margin.
  kFaster,   // The interval lies below 1, and the test agrees.
  kSlower,   // The interval lies above 1, and the test agrees.
  kUnclear,  // None of these holds, or there are too few samples: measure more.
};
TRACESTEP_WORDS(Change, "same", "faster", "slower", "unclear");

struct Comparison;
// Says the comparison's verdict; "too few samples": there is no interval.
std::string_view words_of(const Comparison& comparison);
// Says the verdict as words_of() does, or "slightly faster" or "slightly slower" if the medians
// differ beyond chance by less than the margin.
std::string_view fine_words_of(const Comparison& comparison);

struct Comparison {
  double ratio;      // B over A
  double low, high;  // The interval of the ratio; NaN when there is none.
  double p;          // The two-sided p-value of the test; NaN when none is used.
  // True if the ratio differs from 1 beyond chance, even by less than the margin.
  bool is_apart = false;
  Change change = Change::kUnclear;
};

// True if B is slower than A beyond chance, even by less than the margin.
bool is_slower(const Comparison& comparison);

// Compares the samples of one process on each side, by a 95 % interval that says nothing of other
// processes. `margin`: 0.02 counts medians within 2 % of each other as the same. The interval is
// NaN with fewer than six samples on a side.
Comparison compare_samples(std::span<const double> a, std::span<const double> b, double margin);

// compare_visits() counts ratios within kVisitMargin of 1 as the same. It compares cells that were
// measured in rounds, visit i of A with visit i of B: the ratio is the median of the pairs' ratios;
// its interval is that of median_interval(), or with fewer than six pairs their range. This is no
// exact test: three pairs lie on one side by chance one time in four.
inline constexpr double kVisitMargin = 0.05;
Comparison compare_visits(const ProcessSamples& a, const ProcessSamples& b);
// Compares by compare_visits() if both cells were visited in at least three rounds
// (paired_medians()), else by compare_samples().
Comparison compare_cells(const TimedSamples& a, const TimedSamples& b, double margin);

// The confidence of compare_processes() and compare_pairs(): of two hundred comparisons of one
// build with itself, at most one is expected to come out faster or slower.
inline constexpr double kProcessConfidence = 0.995;

// True if this many processes on each side are enough to show a difference: when all processes of
// one side are faster than all of the other, the exact test gives p < 0.5 %. Six and six are
// enough, five and five are not.
bool can_tell(std::size_t processes_a, std::size_t processes_b);

// Compares samples grouped by process, at 99.5 %. The ratio is that of the medians of processes'
// medians, its interval from process_ratio_interval(), the test Mann and Whitney's on the
// processes' medians, exact for any distribution that both sides share. Where can_tell() says no,
// everything is unclear unless `noise` is known: then the interval alone decides.
Comparison compare_processes(const ProcessSamples& a, const ProcessSamples& b, double margin,
                             const std::optional<ProcessNoise>& noise = {});

// True if this many pairs are enough to show a difference: when all pairs have the same sign, the
// test gives p < 0.5 %. Nine are enough.
bool can_tell_pairs(std::size_t pairs);

// Compares processes that ran in pairs, the i-th of A with the i-th of B in an order drawn by lot,
// at 99.5 %. The ratio is the median of the pairs' ratios, its interval from pair_ratio_interval(),
// the test Wilcoxon's of their logarithms, exact whatever the noise: drifts, clusters and
// dependence between pairs are alike for both orders, and the lot decides which one is measured.
// Both sides have equally many processes; the verdict is "unclear" where can_tell_pairs() is false.
Comparison compare_pairs(const ProcessSamples& a, const ProcessSamples& b, double margin);

// Returns the noise between processes, pooled over cells that were measured in several; none with
// fewer than five degrees of freedom. Each entry is one side of one cell.
std::optional<ProcessNoise> pooled_noise(std::span<const ProcessSamples> cells);

}  // namespace tracestep
