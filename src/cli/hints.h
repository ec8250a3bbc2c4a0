// Suggests what to try next, as command lines.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "run/run_spec.h"
#include "runtime/allocator.h"

namespace tracestep::cli {

// The command line with which Nsight Systems records just the timed steps. `program` run with
// `arguments` (without --nsys-hint) under nsys, one report for each of `cells`. Words are quoted
// for a shell.
std::string nsys_command(const std::filesystem::path& program,
                         std::span<const std::string> arguments, std::size_t cells);

// A hint for a single run that is out of memory. `lack` says of which. If it is the host's beside a
// GPU: how much of it the run needs. If the machine has no room: the command that says what would
// fit. Else, with a memory limit: the smallest change that fits, its peak, and the command that
// shows the others. Nothing runs; the search takes seconds for large models.
std::string oom_hint(const RunSpec& run, const Lack& lack);

// The result of `work`, a single run; an OutOfMemory gets the hint behind its own.
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
