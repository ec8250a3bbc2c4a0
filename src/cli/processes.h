// The processes that a launcher started with this one: joining them, and what all but the first
// leave to the first.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/processes.h"

namespace tracestep::cli {

// Joins the others, if a launcher started several processes and the command runs steps of several
// ranks. From then on the first alone writes results, and the others write warnings. Errors:
// kFailed when they cannot be joined, or when their builds or command lines differ; kDevice when
// MPI started them and this build has none.
void join_processes(const std::string& command, std::span<const std::string> arguments);
// The names of the commands that run steps of several ranks.
std::span<const std::string> shared_commands();
// The joined processes; nullptr: this process runs alone.
Processes* processes();
// Waits for the others, before this process ends without an error.
void leave_processes();

// For register_group(): threads of this process, or the joined processes, by MPI where tensors are
// in host memory and by NCCL on GPUs. Error{kUsage} when there are not `ranks` processes, or
// nothing connects their devices.
std::vector<std::unique_ptr<Communicator>> connect_ranks(Device& first, int ranks);

// Resolves --device for this process: "cuda" is the GPU whose index is the process's number on its
// host.
std::string device_of_process(const std::string& device);

}  // namespace tracestep::cli
