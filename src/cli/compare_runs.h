// Implements `compare --run A --run B`: measures both sides now, in pairs.
#pragma once

#include <optional>
#include <string>

#include "base/signals.h"
#include "lab/compare/result_file.h"

namespace tracestep::cli {

struct RunPair {
  ResultFile a, b;
};

// Runs both command lines by the shell, `processes` times each, in pairs whose order is drawn by
// lot (is_b_first()), and reads the JSON result that each prints. Commands of this program get
// "--format json" unless a format is given; others run unchanged. If neither prints a result, the
// wall time of the commands is compared. nullopt: `stop` ended the current run. Throws
// Error{kFailed} with the last message of a command that fails; running out of memory is a result.
std::optional<RunPair> run_in_pairs(const std::string& a, const std::string& b, int processes,
                                    const StopSignal& stop);

}  // namespace tracestep::cli
