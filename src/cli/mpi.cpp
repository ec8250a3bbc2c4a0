#include "cli/mpi.h"

#ifdef TRACESTEP_WITH_MPI
#include "backends/comm/mpi/mpi_group.h"
#else
#include "base/error.h"
#endif

namespace tracestep::cli {

#ifdef TRACESTEP_WITH_MPI

bool has_mpi() {
  return true;
}

std::unique_ptr<Processes> join_by_mpi(double timeout_s) {
  return join_mpi(timeout_s);
}

std::unique_ptr<Communicator> connect_by_mpi(Processes& processes) {
  return make_mpi_group(processes);
}

#else

bool has_mpi() {
  return false;
}

std::unique_ptr<Processes> join_by_mpi(double) {
  throw Error(ErrorCode::kDevice, "MPI", "this build has none, and MPI started this process",
              "install libopenmpi-dev and build again");
}

std::unique_ptr<Communicator> connect_by_mpi(Processes&) {
  TRACESTEP_CHECK(false, "nothing is joined by MPI without it");
}

#endif

}  // namespace tracestep::cli
