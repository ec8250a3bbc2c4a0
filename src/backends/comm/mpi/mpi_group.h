// Ranks as processes that mpirun or srun started, with tensors in host memory.
#pragma once

#include <memory>

#include "runtime/communicator.h"
#include "runtime/processes.h"

namespace tracestep {

// Joins the other processes, which must do the same; once in a process, before it starts threads
// that use MPI. `timeout_s`: how long a rank may keep the others waiting. Error{kFailed}: MPI
// cannot start. The result's destructor waits for the others.
std::unique_ptr<Processes> join_mpi(double timeout_s);
// Returns this process's communicator in a group of all processes. `processes`: the result of
// join_mpi(), which must outlive the communicator.
std::unique_ptr<Communicator> make_mpi_group(Processes& processes);

}  // namespace tracestep
