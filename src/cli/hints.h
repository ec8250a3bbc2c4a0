// Suggests what to try next, as command lines.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "run/run_spec.h"
#include "runtime/allocator.h"

namespace tracestep::cli {

// The command line with which Nsight Systems records only the timed steps: `program` with
// `arguments` (without --nsys-hint) under nsys, with one report for each of `cells`. Words are
// quoted for a shell.
std::string nsys_command(const std::filesystem::path& program,
                         std::span<const std::string> arguments, std::size_t cells);

// The hint for a single run that is out of memory. `lack` says which memory: if it is the host's
// beside a GPU, how much the run needs there. If the machine has no room, the command that says
// what would fit. Else, with a memory limit, the smallest change that fits, its peak, and the
// command that shows others. Nothing runs; the search takes seconds for large models.
std::string oom_hint(const RunSpec& run, const Lack& lack);

// Returns work(), a single run. If it throws OutOfMemory, oom_hint() is added to the error's own
// hint.
template <class Work>
auto with_oom_hint(const RunSpec& run, const Work& work) {
  try {
    return work();
  } catch (const OutOfMemory& error) {
    throw Error(error.code(), error.where(), error.message(),
                error.hint() + "; " + oom_hint(run, error.lack()));
  }
}

}  // namespace tracestep::cli
