// Compares two lists of times: the ratio of their medians, how uncertain it is, and what may be
// said of it.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "lab/measure/bootstrap.h"
#include "lab/measure/processes.h"

namespace tracestep {

enum class Change {
  kSame,     // the interval of the ratio lies within the margin
  kFaster,   // it lies below 1, and the test agrees
  kSlower,   // it lies above 1, likewise
  kUnclear,  // neither, or too little is known: measure more
};
std::string_view name_of(Change change);

struct Comparison;
// name_of() its change, or that there are too few samples for an interval.
std::string_view words_of(const Comparison& comparison);
// Is words_of(), but "slightly faster" or "slightly slower" where medians are apart beyond chance,
// yet by less than the margin.
std::string_view fine_words_of(const Comparison& comparison);

struct Comparison {
  double ratio;           // B over A
  double low, high;       // its interval; NaN when there is none
  double p;               // of the test, two-sided; NaN when none is used
  bool is_apart = false;  // the ratio is not 1, beyond chance, by however little
  Change change = Change::kUnclear;
};

// True if B is slower beyond chance, by however little.
bool is_slower(const Comparison& comparison);

// Samples of one process: what this process shows, at 95 %. Says nothing of another process of the
// same build. `margin`: 0.02 counts medians within 2 % of each other as the same. The interval is
// NaN with fewer than six samples on a side.
Comparison compare_samples(std::span<const double> a, std::span<const double> b, double margin);

// Cells of rounds, the i-th visit of A beside the i-th of B: the ratio is the median of the pairs'
// ratios, its interval that of median_interval(), with fewer than six pairs their range. What lies
// within kVisitMargin is the same. Not an exact test: three pairs all lie on one side by chance
// once in four times, but then by little.
inline constexpr double kVisitMargin = 0.05;
Comparison compare_visits(const ProcessSamples& a, const ProcessSamples& b);
// Is compare_visits() in the rounds of both, three at least (paired_medians()), and
// compare_samples() else.
Comparison compare_cells(const TimedSamples& a, const TimedSamples& b, double margin);

// The confidence of compare_processes() and compare_pairs(): of two hundred comparisons of one
// build with itself, at most one is expected to come out faster or slower.
inline constexpr double kProcessConfidence = 0.995;

// True if so many processes on each side can show a difference at all: with every process of one
// side below every one of the other, the exact test must give p < 0.5 %. Six and six do, five and
// five do not.
bool can_tell(std::size_t processes_a, std::size_t processes_b);

// Samples that know their process, at 99.5 %. The ratio is that of the medians of the processes'
// medians, its interval from process_ratio_interval(), the test on the processes' medians, which is
// exact for any distribution of these that both sides share. Where can_tell() says no,
// everything is unclear unless `noise` is known: then the interval alone decides.
Comparison compare_processes(const ProcessSamples& a, const ProcessSamples& b, double margin,
                             const std::optional<ProcessNoise>& noise = {});

// True if so many pairs can show a difference at all: pairs that all have one sign must give p <
// 0.5 %. Nine do.
bool can_tell_pairs(std::size_t pairs);

// Processes that ran in pairs, the i-th of A beside the i-th of B in an order drawn by lot, at
// 99.5 %. The ratio is the median of the pairs' ratios, its interval from pair_ratio_interval(),
// the test Wilcoxon's of their logarithms. It is exact whatever the noise: drifts, clusters and
// dependence between pairs are the same for both orders of each pair, and the lot decides which is
// measured. Both sides have equally many processes; unclear where can_tell_pairs() says no.
Comparison compare_pairs(const ProcessSamples& a, const ProcessSamples& b, double margin);

// The noise between processes, pooled over cells that were measured in several; none with fewer
// than five degrees of freedom. Each entry is one side of one cell.
std::optional<ProcessNoise> pooled_noise(std::span<const ProcessSamples> cells);

}  // namespace tracestep
