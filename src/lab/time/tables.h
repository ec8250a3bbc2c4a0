// Times as tables: where those and the bytes of one recorded step went, and what warm-up leaves
// out.
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>

#include "lab/measure/validity.h"
#include "lab/time/cell.h"

namespace tracestep {

// --- one step: everything adds up to the whole, and what is between kernels is a row -------------
// Kernels' times are those of a recorded step, the whole is the median span of the timed ones; what
// recording makes of gaps and span is a column of its own.

// Kernels' milliseconds by phase, in the order of kAllPhases.
using PhaseTimes = std::array<double, std::size(kAllPhases)>;
using ComponentTimes = std::map<std::string, PhaseTimes>;
// The times of the recorded step, by component.
ComponentTimes component_times(const CellResult& result);

// Rows: component; columns: milliseconds per phase, total, share; the last rows are "gaps" (between
// kernels; empty where the recorded step's kernels took longer than the span) and "total" (the
// span).
Table time_by_component(const CellResult& result);
// Rows: kernel class; columns: launches, milliseconds, share, GFLOP/s, GB/s.
Table time_by_class(const CellResult& result);

// --- the warm-up study ---------------------------------------------------------------------------
// Compares a cell with 0, 1, 2, 5 … warm-up steps, each from a fresh start, with the same number of
// timed steps, so that deviations can be compared.

// `rows`: rows of `bench`, each of a process of its own, those of one cell one after the other.
Table warmup_table(std::span<const ResultRow> rows);

// How many steps at the start of a sequence are longer than `factor` times the median of its last
// half: what a warm-up has to leave out.
int unsettled_steps(std::span<const double> steps_ms, double factor = 1.10);

}  // namespace tracestep
