// The checks of samples, for the list of all checks in validity_checks.cpp.
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

}  // namespace tracestep
