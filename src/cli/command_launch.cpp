// tracestep launch: the same command in several processes that share its steps.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

#include <fmt/ranges.h>

#include "backends/comm/launch/launched.h"
#include "backends/comm/tcp/connection.h"
#include "backends/comm/tcp/secret.h"
#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/arguments.h"
#include "cli/child_process.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/processes.h"

namespace tracestep::cli {
namespace {

constexpr const char* kSelf = "/proc/self/exe";
constexpr const char* kCommandDoc = "what each of them runs, with its options";
constexpr std::chrono::milliseconds kBetweenLooks{20};

struct LaunchOptions {
  int processes = 2;
  double comm_timeout_s = 300.0, grace_s = 300.0;
  std::string command;  // its first word; the rest is read from the arguments
};

// Runs mpirun in place of this program. On CPUs MPI connects processes; if one fails, all end.
[[noreturn]] void become_mpirun(int processes, const std::vector<std::string>& command) {
  std::error_code error;
  const std::string self = std::filesystem::read_symlink(kSelf, error).string();
  std::vector<std::string> words{"mpirun",
                                 "-n",
                                 fmt::format("{}", processes),
                                 "--oversubscribe",
                                 "--bind-to",
                                 "none",
                                 "--mca",
                                 "mpi_yield_when_idle",
                                 "1",
                                 "-x",
                                 std::string(env::kCommTimeout.name)};
  if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
  // Ranks share memory here, and need no ports that anybody could connect to.
  ::setenv("OMPI_MCA_btl", "^tcp,ofi", 0);
  // mpirun gives the ranks a terminal to write to, whatever it writes to itself.
  if (isatty(STDOUT_FILENO) == 0) ::setenv("NO_COLOR", "1", 0);
  words.push_back(self);
  words.insert(words.end(), command.begin(), command.end());
  become("mpirun", words);
  throw Error(ErrorCode::kDevice, "mpirun", std::strerror(errno),
              "install openmpi-bin, or use --parallel dp=N in one process");
}

// Starts processes with the variables of torchrun. When one fails, the others end as well. Signals
// to this process are passed on.
class PlainProcesses {
 public:
  PlainProcesses(const LaunchOptions& o, const std::vector<std::string>& command) {
    std::vector<std::string> words{"tracestep"};
    words.insert(words.end(), command.begin(), command.end());
    // Otherwise NCCL listens on the network, and waits for anybody who connects and says nothing.
    ::setenv("NCCL_SOCKET_IFNAME", "=lo", 0);
    for (int rank = 0; rank < o.processes; ++rank) start(rank, o, words);
  }

  // Returns the status of the first process that failed; 0 when none did. Once `stop` is requested
  // they have `grace_s` to end.
  int wait(const StopSignal& stop, double grace_s) {
    int out = 0;
    for (std::size_t left = children_.size(); left > 0;) {
      int state = 0;
      const pid_t child = ::waitpid(-1, &state, WNOHANG);
      if (child < 0) break;
      if (child == 0) {
        if (stop.requested()) pass_on(stop, grace_s);
        if (stop.asks_to_save()) {
          stop.saved();
          send_all(SIGUSR1);
        }
        std::this_thread::sleep_for(kBetweenLooks);
        continue;
      }
      const auto rank = std::ranges::find(children_, child) - children_.begin();
      if (rank == std::ssize(children_)) continue;  // of who became this program
      --left;
      children_[static_cast<std::size_t>(rank)] = 0;
      const int status = exit_status_of(state);
      if (status == 0 || out != 0) continue;
      out = status;
      if (WIFSIGNALED(state) && !are_killed_)
        log_warn("[rank {}] {}", rank, ::strsignal(WTERMSIG(state)));
      if (!stop.requested()) end_others();
    }
    return out;
  }

 private:
  void start(int rank, const LaunchOptions& o, const std::vector<std::string>& words) {
    const auto number = [](int value) { return fmt::format("{}", value); };
    try {
      children_.push_back(
          start_process({.program = kSelf,
                         .words = words,
                         .variables = {{std::string(env::kRank.name), number(rank)},
                                       {std::string(env::kLocalRank.name), number(rank)},
                                       {std::string(env::kWorldSize.name), number(o.processes)},
                                       {std::string(env::kMasterAddress.name), "127.0.0.1"},
                                       {std::string(env::kMasterPort.name), number(port_.port)},
                                       {std::string(env::kCommSecret.name), secret_}}}));
    } catch (const Error&) {
      end_others();
      throw;
    }
  }

  // Asks all to stop, once, and kills those that are still there too long after that: a rank may be
  // held in a driver.
  void pass_on(const StopSignal& stop, double grace_s) {
    if (!asked_at_) {
      asked_at_ = Clock::now();
      return send_all(stop.signal_number());
    }
    if (are_killed_ || std::chrono::duration<double>(Clock::now() - *asked_at_).count() < grace_s) {
      return;
    }
    are_killed_ = true;
    for (std::size_t rank = 0; rank < children_.size(); ++rank) {
      if (children_[rank] == 0) continue;
      log_warn("[rank {}] it has not ended within {:g} s and is killed", rank, grace_s);
    }
    send_all(SIGKILL);
  }

  // Kills every process that does not end within a second, a stopped one among them.
  void end_others() const {
    send_all(SIGTERM);
    std::this_thread::sleep_for(std::chrono::seconds(1));
    send_all(SIGKILL);
  }

  void send_all(int number) const {
    for (const pid_t child : children_) {
      if (child > 0) ::kill(child, number);
    }
  }

  const ReservedPort port_ = reserve_port();
  const std::string secret_ = hex_of(random_bytes());
  std::vector<pid_t> children_;                // by rank; 0: it has ended
  std::optional<Clock::time_point> asked_at_;  // to stop
  bool are_killed_ = false;
};

bool is_this_program(const std::string& word) {
  std::error_code ignored;
  return word == "tracestep" ||
         (word.find('/') != std::string::npos && std::filesystem::equivalent(word, kSelf, ignored));
}

// The words of the command after "--", without this program's name, which mpirun would need.
std::vector<std::string> command_of(std::span<const std::string> arguments) {
  auto first = std::ranges::find(arguments, "--") + 1;
  if (first != arguments.end() && is_this_program(*first)) ++first;
  return {first, arguments.end()};
}

void check_ranks(int ranks, int processes) {
  if (ranks == processes) return;
  throw Error(ErrorCode::kUsage, "parallel"_field,
              fmt::format("{} processes are asked for, and the step is that of {} rank{}",
                          processes, ranks, ranks == 1 ? "" : "s"),
              fmt::format("use --parallel dp={}, or as many processes as it has ranks", processes));
}

// Checks, before ranks start, for errors that all of them would report. Returns where the ranks
// will run; nullopt: the command asks for help, which is printed.
std::optional<Place> checked_place(const std::vector<std::string>& words, int processes) {
  if (words.empty()) fail_usage("launch", "-- COMMAND is missing: {}", kCommandDoc);
  const Command* command = parse_arguments(all_commands(), words);
  if (command == nullptr) return std::nullopt;
  const auto shared = shared_commands();
  if (std::ranges::find(shared, command->name) == shared.end()) {
    throw Error(ErrorCode::kUsage, "launch",
                fmt::format("{} does not share its work among processes", command->name),
                fmt::format("{} do", fmt::join(shared, ", ")));
  }
  try {
    const std::vector<PlannedCell> cells = command->plan(words);
    for (const PlannedCell& cell : cells) {
      for (const RunSpec& run : cell.needs.runs) check_ranks(run.parallel.ranks, processes);
    }
    return cells.front().needs.place;
  } catch (const Error& error) {
    throw command->options.in_flags(error);
  }
}

int run_launch(const LaunchOptions& o, std::span<const std::string> arguments) {
  const std::vector<std::string> words = command_of(arguments);
  const std::optional<Place> place = checked_place(words, o.processes);
  if (!place) return 0;
  ::setenv(std::string(env::kCommTimeout.name).c_str(), fmt::format("{}", o.comm_timeout_s).c_str(),
           1);
  if (!traits_of(*place).has_own_links()) become_mpirun(o.processes, words);
  const StopSignal stop("the ranks are asked to stop", "the ranks are asked to save");
  PlainProcesses ranks(o, words);
  const int status = ranks.wait(stop, o.grace_s);
  return stop.requested() ? stop.exit_status() : status;
}

}  // namespace

Command launch_command() {
  const auto options = std::make_shared<LaunchOptions>();
  Command command{.name = "launch"};
  OptionSet& set = command.options;
  set.positional("-- COMMAND", options->command, kCommandDoc);
  set.integer("-n", options->processes, {2, 4096}, "processes");
  set.real("--comm-timeout", options->comm_timeout_s, {.min = 0.1},
           "seconds after which a rank that does not come to a collective has failed");
  set.real("--grace", options->grace_s, {.min = 0.0},
           "seconds that processes without MPI have to end, a checkpoint of the last step "
           "included, when this one is told to; then they are killed");
  runs_with(command, options, run_launch);
  return command;
}

}  // namespace tracestep::cli
