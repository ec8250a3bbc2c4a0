// Tables of times: where the time and the bytes of one recorded step went, and what warm-up leaves
// out.
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>

#include "lab/measure/validity.h"
#include "lab/time/cell.h"

namespace tracestep {

// --- one step; all rows add up to the whole, and one row is the time between kernels -------------
// Kernel times are those of a recorded step, and the whole is the median span of the timed steps.
// The effect of recording on gaps and span has its own column.

// Kernels' milliseconds by phase, in the order of kAll<Phase>.
using PhaseTimes = std::array<double, std::size(kAll<Phase>)>;
using ComponentTimes = std::map<std::string, PhaseTimes>;
// Returns the times of the recorded step, by component.
ComponentTimes component_times(const CellResult& result);

// Makes a table with a row for each component: milliseconds per phase, total, share; the last rows
// are "gaps" (between kernels; empty where the recorded step's kernels took longer than the span)
// and "total" (the span).
Table time_by_component(const CellResult& result);
// Makes a table with a row for each kernel class: launches, milliseconds, share, GFLOP/s, GB/s.
Table time_by_class(const CellResult& result);

// --- the warm-up study ---------------------------------------------------------------------------
// Compares a cell with 0, 1, 2, 5 … warm-up steps, each from a fresh start, with the same number of
// timed steps, so that deviations can be compared.

// Makes the table of starts. `rows`: of `bench`, a process each; those of one cell are neighbours.
Table warmup_table(std::span<const ResultRow> rows);

// Returns how many steps at the start of a sequence take longer than `factor` times the median of
// its second half: the steps that a warm-up must leave out.
int unsettled_steps(std::span<const double> steps_ms, double factor = 1.10);

}  // namespace tracestep
