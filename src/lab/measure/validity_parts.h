// The checks of rows, part by part, for the list of all checks in validity_checks.cpp: those of
// samples; then those of recorded steps, from which busy times, shares and rooflines come. These
// are steps of their own, so they may be slower than the timed ones, or unlike them.
#pragma once

#include "lab/measure/validity.h"

namespace tracestep {

// Returns how many of the row's samples each process, or each visit of a round, took; empty: all
// are of one.
std::vector<double> counts_in(const ResultRow& row);

std::optional<Verdict> too_few_samples(const ResultRow& row);
std::optional<Verdict> no_warmup(const ResultRow& row);
std::optional<Verdict> warmup_too_short(const ResultRow& row);
std::optional<Verdict> unsteady(const ResultRow& row);
std::optional<Verdict> drifting(const ResultRow& row);
std::optional<Verdict> criterion_not_met(const ResultRow& row);

// True if the row's device computes numbers; false: the row's times say nothing.
bool computes(const ResultRow& row);

// Reports recorded steps that take noticeably longer than plain ones.
std::optional<Verdict> instrument_cost(const ResultRow& row);
// Reports recorded steps whose kernels take longer than whole plain steps, or that end far sooner:
// the two kinds of steps then differ. It is a doubt if the row only has shares, and a note if it
// has timed samples, which stay valid. The same holds for recorded_unsteady().
std::optional<Verdict> recorded_apart(const ResultRow& row);
// Reports too few recorded steps for shares, or recorded steps whose kernel times
// (`recorded_busy_ms`, one each) differ.
std::optional<Verdict> recorded_unsteady(const ResultRow& row);
// Reports single launches in recorded steps that took far longer than the same launch in others
// (`interrupted_ms` of a step, lab/measure/recorded_times.h). It is a note, and a doubt about
// shares if they make up a tenth of the kernels' time.
std::optional<Verdict> uneven_instances(const ResultRow& row);
// Reports kernels that run at the same time: the kernel times (`kernels_ms`) add up to more than
// the time in which any kernel runs (`device_busy_ms`).
std::optional<Verdict> overlapping_kernels(const ResultRow& row);
// Reports a kernel above the device's ceilings. `highest_roof_percent`, with `highest_roof_kernel`,
// `_bound` and `_bytes` (of one launch), is the highest of all kernels that take a share of the
// time. A memory ceiling that a cache explains gives a note only.
std::optional<Verdict> above_the_roof(const ResultRow& row);
// Returns the percentage of a memory ceiling that remains if a launch reads from the largest cache,
// and leaves in it, as much as the cache holds.
double beyond_caches(double roof_percent, double launch_bytes);

}  // namespace tracestep
