#include "cli/processes.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "backends/comm/launch/launched.h"
#include "backends/comm/local/local_group.h"
#include "backends/comm/tcp/tcp_processes.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/output_file.h"
#include "cli/cuda.h"
#include "cli/mpi.h"
#include "lab/measure/commit.h"
#include "planning/device_traits.h"
#include "runtime/device.h"
#include "runtime/host_wait.h"

namespace tracestep::cli {
namespace {

std::unique_ptr<Processes>& joined() {
  static std::unique_ptr<Processes> all;
  return all;
}

// The watch that ends all processes when this one waits for its device too long.
std::optional<WaitWatch>& watch() {
  static std::optional<WaitWatch> one;
  return one;
}

std::unique_ptr<Processes> join(const Launched& self) {
  if (self.has_mpi) return join_by_mpi(env::comm_timeout_s());
  return join_tcp(self, secret_of_run(), env::comm_timeout_s());
}

std::uint64_t hash_of(std::string_view text) {
  return std::stoull(hash_text(std::as_bytes(std::span(text))), nullptr, 16);
}

// Refuses two ranks on one GPU, for which NCCL's message is hard to read. Ranks to which a launcher
// shows one GPU each all call it number 0, so what is shown to them is compared as well.
void check_own_gpu(Processes& others, const Device& device) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::vector<std::uint64_t> all = others.exchange(
      hash_of(fmt::format("{} {} {}", host, visible == nullptr ? "" : visible, device.name())));
  std::ranges::sort(all);
  if (std::ranges::adjacent_find(all) == all.end()) return;
  throw Error(ErrorCode::kUsage, "--device", "two ranks of a host share a GPU",
              "use --device cuda: each has the GPU of its number on the host");
}

std::unique_ptr<Communicator> connect(Processes& others, Device& device) {
  if (device.traits().has_own_links()) {
    check_own_gpu(others, device);
    return make_cuda_group(others, device);
  }
  if (launched()->has_mpi) return connect_by_mpi(others);
  throw Error(ErrorCode::kUsage, "--device",
              fmt::format("nothing connects {} devices of processes without MPI", device.name()),
              "start them with mpirun, or with srun --mpi=pmix");
}

}  // namespace

void join_processes(const std::string& command, std::span<const std::string> arguments) {
  const auto self = launched();
  const auto shared = shared_commands();
  if (!self || std::ranges::find(shared, command) == shared.end()) return;
  joined() = join(*self);
  watch().emplace(*joined(), env::comm_timeout_s());
  if (self->rank != 0) {
    leave_results_to_another_process();
    if (std::freopen("/dev/null", "w", stdout) == nullptr) std::fclose(stdout);
    if (log_level() > LogLevel::kWarn) set_log_level(LogLevel::kWarn);
  }
  check_same(*joined(), "its version of tracestep", hash_of(kCommit));
  std::string words;
  for (const std::string& word : arguments) words += word + '\n';
  check_same(*joined(), "its command line", hash_of(words));
}

std::span<const std::string> shared_commands() {
  static const std::vector<std::string> names{"bench", "comm", "memory", "profile", "train"};
  return names;
}

Processes* processes() {
  return joined().get();
}

void leave_processes() {
  watch().reset();
  joined().reset();
}

std::vector<std::unique_ptr<Communicator>> connect_ranks(Device& first, int ranks) {
  if (processes() == nullptr) return make_local_group(ranks, env::comm_timeout_s());
  if (processes()->count() != ranks) {
    throw Error(ErrorCode::kUsage, "--parallel",
                fmt::format("{} processes were started for {} ranks", processes()->count(), ranks),
                fmt::format("use dp={}, or start {}", processes()->count(), ranks));
  }
  std::vector<std::unique_ptr<Communicator>> out;
  out.push_back(connect(*processes(), first));
  return out;
}

std::string device_of_process(const std::string& device) {
  const bool is_one_of_several =
      traits_named(device).has_own_links() && device.find(':') == std::string::npos;
  if (!is_one_of_several || processes() == nullptr || processes()->local_rank() == 0) return device;
  return fmt::format("{}:{}", device, processes()->local_rank());
}

}  // namespace tracestep::cli
