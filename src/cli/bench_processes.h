// `bench --processes N`: each cell measured in N processes, one after the other.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/json.h"
#include "base/signals.h"
#include "spec/run_spec.h"

namespace tracestep::cli {

// The cell's rows of `processes` new processes as one (merged_row()); none when `stop` came before
// the last. `arguments`: those of this process. `roof`: TFLOP/s for all of them; without it the
// first one measures it. `announce` is called with the number of each process, from 1.
std::optional<Json> processes_row(const RunSpec& run, int processes,
                                  std::span<const std::string> arguments,
                                  std::optional<double> roof, const StopSignal& stop,
                                  const std::function<void(int process)>& announce);

}  // namespace tracestep::cli
