// `bench --warmup-study`: every cell with each number of warm-up steps, in processes of their own.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/signals.h"
#include "cli/grid.h"
#include "lab/report/table.h"

namespace tracestep::cli {

// `arguments`: those of this process; the new ones get all but what names the cell, the warm-up and
// the output. Ends early when `stop` is requested (nullptr: never). Error{kFailed} with what a
// process said when it fails.
Table warmup_study(const std::vector<GridCell>& cells, const std::vector<std::int64_t>& warmups,
                   std::span<const std::string> arguments, const StopSignal* stop);

// Arguments without the flags of `dropped` and their values. A flag's value is the next word, or
// stands behind "=".
std::vector<std::string> without_flags(std::span<const std::string> arguments,
                                       std::span<const std::string_view> dropped);

}  // namespace tracestep::cli
