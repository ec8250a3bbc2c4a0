// The checks of rows, part by part, for the list of all checks in validity_checks.cpp: those of
// samples; then those of recorded steps, from which busy times, shares and rooflines come. These
// are steps of their own, so they may be slower than the timed ones, or unlike them.
#pragma once

#include "lab/measure/validity.h"

namespace tracestep {

// How many of a row's samples each process, or each visit of a round, took; empty: all are of one.
std::vector<double> counts_in(const ResultRow& row);

std::optional<Verdict> too_few_samples(const ResultRow& row);
std::optional<Verdict> no_warmup(const ResultRow& row);
std::optional<Verdict> warmup_too_short(const ResultRow& row);
std::optional<Verdict> unsteady(const ResultRow& row);
std::optional<Verdict> drifting(const ResultRow& row);
std::optional<Verdict> criterion_not_met(const ResultRow& row);

// False for a device that computes no numbers: the row's times then say nothing.
bool computes(const ResultRow& row);

// Recording slows steps down.
std::optional<Verdict> instrument_cost(const ResultRow& row);
// Kernels of recorded steps work for longer than unrecorded steps last, or recorded steps are over
// far sooner: the two are not alike. A doubt where shares are all that the row has, a note where it
// has timed samples, which stand; so is the next one.
std::optional<Verdict> recorded_apart(const ResultRow& row);
// Too few recorded steps for shares, or steps that differ (`recorded_busy_ms`, kernels' time of
// each).
std::optional<Verdict> recorded_unsteady(const ResultRow& row);
// Single launches of recorded steps that took far longer than the same launch otherwise does
// (`interrupted_ms` of a step, lab/measure/recorded_times.h): a note, and a doubt about shares
// where it is a tenth of the kernels' time.
std::optional<Verdict> uneven_instances(const ResultRow& row);
// Kernels that run at the same time: their times (`kernels_ms`) add up to more than the time in
// which kernels run (`device_busy_ms`).
std::optional<Verdict> overlapping_kernels(const ResultRow& row);
// More than the ceilings allow: `highest_roof_percent`, with `highest_roof_kernel`, `_bound` and
// `_bytes` (of one launch), is the most of a profile's kernels that take a share of the time. By
// bytes it is a note where a cache explains it.
std::optional<Verdict> above_the_roof(const ResultRow& row);
// The percentage of a roof by bytes that is left when a launch finds in a cache what it reads, as
// far as the largest cache holds it, and leaves there as much of what it writes.
double beyond_caches(double roof_percent, double launch_bytes);

}  // namespace tracestep
