// Reads what a launcher (mpirun, srun, torchrun, `tracestep launch`) says about this process in
// environment variables. Other folders of backends/comm/ connect the processes.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/env.h"

namespace tracestep {

struct Launched {
  int rank = 0, count = 1;
  int local_rank = 0;  // The number of this process among those on its host.
  // True: started by mpirun, or by srun with PMI, so that MPI connects the processes. False: the
  // first process listens on host:port.
  bool has_mpi = false;
  std::string host = {};
  int port = 0;
};

// Returns what the launcher says of this process; nullopt if it was started alone. MPI's variables
// are read first, then torchrun's, then those of a step of srun, whose first process listens on the
// step's first host, at a port derived from the numbers of job and step, unless MASTER_ADDR and
// MASTER_PORT are set. A batch script of several tasks is a single process, unless it inherited a
// step's variables, because other launchers' and Slurm's variables do not say to which process they
// belong. Throws Error{kUsage} for a malformed or missing variable.
std::optional<Launched> launched();
// Returns the first host in a list as Slurm writes it: "node03-ib" for "node[03-05,9]-ib,other".
std::string first_host(std::string_view hosts);

namespace env {
// Return the process's rank, the number of processes, and the rank on the host; nullopt: unset.
std::optional<int> rank();
std::optional<int> world_size();
std::optional<int> local_rank();
std::optional<int> master_port();

inline constexpr Variable kRank = {"RANK", "this process among WORLD_SIZE, as torchrun sets it",
                                   "unset", check_by<rank>};
inline constexpr Variable kWorldSize = {"WORLD_SIZE", "processes that share a run", "unset",
                                        check_by<world_size>};
inline constexpr Variable kLocalRank = {
    "LOCAL_RANK", "this process among those on its host: its GPU", "unset", check_by<local_rank>};
inline constexpr Variable kMasterAddress = {"MASTER_ADDR", "host of process 0", "unset"};
inline constexpr Variable kMasterPort = {"MASTER_PORT", "where process 0 listens", "unset",
                                         check_by<master_port>};
inline constexpr Variable kCommSecret = {
    .name = "TRACESTEP_COMM_SECRET",
    .doc = "64 hexadecimal digits by which processes of a run know each other; launch sets it",
    .default_value = "unset",
    .is_secret = true};
inline constexpr Variable kCommSecretFile = {
    "TRACESTEP_COMM_SECRET_FILE",
    "file of mode 600 that holds them; needed where process 0 is on another host", "unset"};
inline constexpr std::array<Variable, 8> kLaunchVariables = {
    kRank,       kWorldSize,   kLocalRank,  kMasterAddress,
    kMasterPort, kCommTimeout, kCommSecret, kCommSecretFile};
}  // namespace env

}  // namespace tracestep
