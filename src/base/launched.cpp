#include "base/launched.h"

#include <cstdint>
#include <limits>

#include "base/error.h"
#include "base/units.h"

namespace tracestep {
namespace {

constexpr int kMostProcesses = 1 << 20, kMostPort = 65535, kMostBlocks = 1024;
constexpr double kDefaultTimeoutS = 300.0;

// How launchers that start processes with MPI name them: Open MPI's mpirun, and PMI (srun, MPICH).
struct Names {
  const char *rank, *count, *local_rank;
};
constexpr Names kMpiNames[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"}};

std::optional<int> number(std::string_view name, std::int64_t least, std::int64_t most) {
  const auto text = env::value_of({name, {}, {}});
  if (!text) return std::nullopt;
  return static_cast<int>(parse_int(std::string(name), *text, least, most));
}

int needed(std::string_view name, std::int64_t least, std::int64_t most) {
  const auto out = number(name, least, most);
  if (!out) fail_usage(std::string(name), "it is missing beside {}", env::kWorldSize.name);
  return *out;
}

}  // namespace

std::optional<Launched> launched() {
  for (const Names& names : kMpiNames) {
    const auto count = number(names.count, 1, kMostProcesses);
    if (!count || *count == 1) continue;
    return Launched{.rank = needed(names.rank, 0, *count - 1),
                    .count = *count,
                    .local_rank = number(names.local_rank, 0, kMostProcesses).value_or(0),
                    .has_mpi = true};
  }
  const auto count = number(env::kWorldSize.name, 1, kMostProcesses);
  if (!count || *count == 1) return std::nullopt;
  return Launched{.rank = needed(env::kRank.name, 0, *count - 1),
                  .count = *count,
                  .local_rank = needed(env::kLocalRank.name, 0, *count - 1),
                  .has_mpi = false,
                  .host = env::value_of(env::kMasterAddress).value_or("127.0.0.1"),
                  .port = needed(env::kMasterPort.name, 1, kMostPort)};
}

int nccl_multiprocessors() {
  return number(env::kNcclBlocks.name, 1, kMostBlocks).value_or(0);
}

double comm_timeout_s() {
  const auto text = env::value_of(env::kCommTimeout);
  if (!text) return kDefaultTimeoutS;
  return parse_real(std::string(env::kCommTimeout.name), *text, 0.1,
                    std::numeric_limits<double>::max());
}

}  // namespace tracestep
