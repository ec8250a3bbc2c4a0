// `bench --warmup-study`: every run with each number of warm-up steps, each in its own process.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/signals.h"
#include "lab/report/table.h"
#include "run/run_spec.h"

namespace tracestep::cli {

// `arguments`: those of this process; the new processes get them without the flags for the run, the
// warm-up and the output. Ends early when `stop` is requested (nullptr: never). Error{kFailed} with
// the last message of a process that fails.
Table warmup_study(const std::vector<RunSpec>& runs, const std::vector<std::int64_t>& warmups,
                   std::span<const std::string> arguments, const StopSignal* stop);

}  // namespace tracestep::cli
