// Cells of `bench` in processes of their own, for measurements that need a fresh start.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "spec/run_spec.h"

namespace tracestep::cli {

// The JSON result of `bench` for this run alone, measured in a new process. `arguments`: those of
// this process; the new one gets them without the flags that choose a cell and say where results
// go, and with `flags` and their values instead of its own (an empty value leaves the flag out).
// Error{kFailed} naming `where` with the last message of a process that fails; running out of
// memory is a result.
Json bench_in_new_process(const RunSpec& run, std::span<const std::string> arguments,
                          std::vector<std::pair<std::string, std::string>> flags,
                          const std::string& where);

}  // namespace tracestep::cli
