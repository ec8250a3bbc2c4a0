// MPI, if the program is linked to it. Only these functions depend on that, so the program of a
// package, which has no MPI, shares all other objects of a build (cmake/package.cmake).
#pragma once

#include <memory>

#include "runtime/communicator.h"
#include "runtime/processes.h"

namespace tracestep::cli {

// True if this program is linked to MPI.
bool has_mpi();
// Call join_mpi() and make_mpi_group() of backends/comm/mpi. Throw Error{kDevice} if this program
// has no MPI.
std::unique_ptr<Processes> join_by_mpi(double timeout_s);
std::unique_ptr<Communicator> connect_by_mpi(Processes& processes);

}  // namespace tracestep::cli
