// The processes that a launcher started together with this one: joining them, and what all but the
// first leave to the first.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/processes.h"

namespace tracestep::cli {

// Joins the other processes if a launcher started several and the command runs steps of several
// ranks. From then on only the first process writes results; the others only write warnings. Throws
// Error{kFailed} if they cannot be joined or their builds or command lines differ, and
// Error{kDevice} if MPI started them and this build has no MPI.
void join_processes(const std::string& command, std::span<const std::string> arguments);
// The names of the commands that run steps of several ranks.
std::span<const std::string> shared_commands();
// The joined processes; nullptr: this process runs alone.
Processes* processes();
// Waits for the other processes before this one ends without an error.
void leave_processes();

// For register_group(): threads of this process, or the joined processes, by MPI where tensors are
// in host memory and by NCCL on GPUs. Error{kUsage} when there are not `ranks` processes, or
// nothing connects their devices.
std::vector<std::unique_ptr<Communicator>> connect_ranks(Device& first, int ranks);

// Resolves --device for this process: "cuda" is the GPU whose index is the process's number on its
// host.
std::string device_of_process(const std::string& device);

}  // namespace tracestep::cli
