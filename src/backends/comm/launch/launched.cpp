#include "backends/comm/launch/launched.h"

#include <cstdint>
#include <limits>

#include "base/error.h"
#include "base/units.h"

namespace tracestep {
namespace {

constexpr int kMostProcesses = 1 << 20, kMostPort = 65535;

// The variables in which Open MPI's mpirun, or PMI (srun, MPICH), gives a process its numbers.
struct Names {
  const char *rank, *count, *local_rank;
};
constexpr Names kMpiNames[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"}};

constexpr const char *kSrunTasks = "SLURM_STEP_NUM_TASKS", *kSrunRank = "SLURM_PROCID",
                     *kSrunLocalRank = "SLURM_LOCALID", *kSrunHosts = "SLURM_STEP_NODELIST",
                     *kSrunJob = "SLURM_JOB_ID", *kSrunStep = "SLURM_STEP_ID";
// The variable that `srun --mpi=pmix` sets, through which MPI connects the processes.
constexpr const char* kPmixRank = "PMIX_RANK";
// The first port for steps of srun, and the number of ports: all lie below outgoing connections'.
constexpr int kFirstSrunPort = 20000, kSrunPorts = 10000;

std::optional<int> number(std::string_view name, std::int64_t least, std::int64_t most) {
  const auto text = env::value_of({name, {}, {}});
  if (!text) return std::nullopt;
  return static_cast<int>(parse_int(std::string(name), *text, least, most));
}

int needed(std::string_view name, std::int64_t least, std::int64_t most,
           std::string_view beside = env::kWorldSize.name) {
  const auto out = number(name, least, most);
  if (!out) fail_usage(std::string(name), "it is missing beside {}", beside);
  return *out;
}

// Returns the port of this step of srun; one in 10,000 pairs of steps on a host has the same port.
int port_of_step() {
  constexpr int kMost = std::numeric_limits<int>::max(), kStepsOfJob = 101;
  const std::int64_t job = needed(kSrunJob, 0, kMost, kSrunTasks),
                     step = needed(kSrunStep, 0, kMost, kSrunTasks);
  return kFirstSrunPort + static_cast<int>((job * kStepsOfJob + step) % kSrunPorts);
}

std::optional<Launched> launched_by_srun() {
  const auto count = number(kSrunTasks, 1, kMostProcesses);
  if (!count || *count == 1) return std::nullopt;
  const auto host = env::value_of(env::kMasterAddress), hosts = env::value_of({kSrunHosts, {}, {}});
  const auto port = env::master_port();
  return Launched{.rank = needed(kSrunRank, 0, *count - 1, kSrunTasks),
                  .count = *count,
                  .local_rank = needed(kSrunLocalRank, 0, *count - 1, kSrunTasks),
                  .has_mpi = env::value_of({kPmixRank, {}, {}}).has_value(),
                  .host = host ? *host : first_host(hosts.value_or("127.0.0.1")),
                  .port = port ? *port : port_of_step()};
}

}  // namespace

namespace env {

std::optional<int> rank() {
  return number(kRank.name, 0, kMostProcesses - 1);
}

std::optional<int> world_size() {
  return number(kWorldSize.name, 1, kMostProcesses);
}

std::optional<int> local_rank() {
  return number(kLocalRank.name, 0, kMostProcesses - 1);
}

std::optional<int> master_port() {
  return number(kMasterPort.name, 1, kMostPort);
}

}  // namespace env

std::string first_host(std::string_view hosts) {
  const std::size_t end = hosts.find_first_of("[,");
  if (end == std::string_view::npos || hosts[end] == ',') return std::string(hosts.substr(0, end));
  const std::size_t close = hosts.find(']', end), number = hosts.find_first_of("-,]", end);
  if (close == std::string_view::npos) return std::string(hosts);
  return fmt::format("{}{}{}", hosts.substr(0, end), hosts.substr(end + 1, number - end - 1),
                     first_host(hosts.substr(close + 1)));
}

std::optional<Launched> launched() {
  for (const Names& names : kMpiNames) {
    const auto count = number(names.count, 1, kMostProcesses);
    if (!count || *count == 1) continue;
    return Launched{.rank = needed(names.rank, 0, *count - 1),
                    .count = *count,
                    .local_rank = number(names.local_rank, 0, kMostProcesses).value_or(0),
                    .has_mpi = true};
  }
  const auto count = env::world_size();
  if (!count) return launched_by_srun();
  if (*count == 1) return std::nullopt;
  return Launched{.rank = needed(env::kRank.name, 0, *count - 1),
                  .count = *count,
                  .local_rank = needed(env::kLocalRank.name, 0, *count - 1),
                  .has_mpi = false,
                  .host = env::value_of(env::kMasterAddress).value_or("127.0.0.1"),
                  .port = needed(env::kMasterPort.name, 1, kMostPort)};
}

}  // namespace tracestep
