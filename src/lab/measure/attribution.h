// Where the time and the bytes of one recorded step went: by component, phase, class, category.
// Everything adds up to the whole; what is between nodes is a row of its own.
#pragma once

#include "analysis/component.h"
#include "lab/measure/cell.h"

namespace tracestep {

// Rows: component; columns: milliseconds per phase, total, share; the last rows are "gaps" (host
// time between nodes) and "total" (the span).
Table time_by_component(const CellResult& result);
// Rows: kernel class; columns: launches, milliseconds, share, GFLOP/s, GB/s.
Table time_by_class(const CellResult& result);
// Rows: category; columns: predicted and measured bytes at the peak, share.
Table bytes_by_category(const CellResult& result);

}  // namespace tracestep
