// `compare --run A --run B`: both sides measured then and there, in pairs.
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
// lot (is_b_first()), and reads the JSON result that each prints; one of this program's commands
// gets "--format json" where no format is given, others are run as they are. Where neither prints a
// result, the wall time of the commands is the result. nullopt: `stop` has ended the run under way.
// Error{kFailed} with the last message of a command that fails; running out of memory is a result.
std::optional<RunPair> run_in_pairs(const std::string& a, const std::string& b, int processes,
                                    const StopSignal& stop);

}  // namespace tracestep::cli
