// The warm-up study: the same cell with 0, 1, 2, 5 … warm-up steps, each from a fresh start, with
// the same number of timed steps, so that deviations can be compared.
#pragma once

#include <span>

#include "lab/measure/validity.h"
#include "lab/report/table.h"

namespace tracestep {

// `rows`: rows of `bench`, each of a process of its own, those of one cell one after the other.
Table warmup_table(std::span<const ResultRow> rows);

// How many steps at the start of a sequence are longer than `factor` times the median of its last
// half: what a warm-up has to leave out.
int unsettled_steps(std::span<const double> steps_ms, double factor = 1.10);

}  // namespace tracestep
