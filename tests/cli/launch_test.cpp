// launch without MPI: ranks as plain processes, and how it ends those that do not end themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <set>
#include <thread>

#include "cli/child_processes.h"
#include "cli/run_binary.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;

bool runs_its_command(pid_t rank) {
  std::ifstream words(fmt::format("/proc/{}/cmdline", rank));
  std::string program, command;
  std::getline(words, program, '\0');
  std::getline(words, command, '\0');
  return command == "bench";
}

// Stops rank 1 before it looks for rank 0, which then waits for it, and returns both. Between looks
// rank 1 runs for a millisecond at most, however busy the machine is. Empty: it was seen too late.
std::vector<pid_t> with_a_stuck_rank(pid_t launcher) {
  std::vector<pid_t> ranks;
  const auto is_stuck = [&] {
    ranks = children_of(launcher);
    if (ranks.size() < 2) return false;
    ::kill(ranks[1], SIGSTOP);
    while (state_of(ranks[1]) != 'T' && !are_ended({ranks[1]})) {
    }
    const bool runs = runs_its_command(ranks[1]);
    if (!runs) ::kill(ranks[1], SIGCONT);
    return runs;
  };
  EXPECT_TRUE(comes_true([&] { return is_stuck() || are_ended({launcher}); }));
  if (ranks.size() < 2 || are_ended(ranks) || takes_signals(ranks[1])) return {};
  EXPECT_TRUE(comes_true([&] { return takes_signals(ranks[0]); }));
  return ranks;
}

// Launches until a stuck rank 1 has been there, with which `then` is called.
ProgramRun launch(const std::string& options,
                  const std::function<void(pid_t, const std::vector<pid_t>&)>& then) {
  for (int attempt = 1;; ++attempt) {
    bool was_stuck = false;
    const ProgramRun run = run_tracestep(
        words_of(fmt::format("launch -n 2 {} -- bench --size tiny --device cuda --parallel dp=2",
                             options)),
        {.while_running = [&](pid_t launcher) {
          const std::vector<pid_t> ranks = with_a_stuck_rank(launcher);
          was_stuck = !ranks.empty();
          was_stuck ? then(launcher, ranks) : void(::kill(launcher, SIGKILL));
        }});
    EXPECT_LT(attempt, 20);
    if (was_stuck || attempt == 20) return run;
  }
}

TEST(LaunchTest, ARankThatDoesNotEndWhenAskedIsKilled) {
  std::vector<pid_t> ranks;
  std::chrono::steady_clock::time_point asked;
  const ProgramRun run = launch("--grace 0.5", [&](pid_t launcher, const auto& all) {
    ranks = all;
    asked = std::chrono::steady_clock::now();
    ::kill(launcher, SIGTERM);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(5));
  EXPECT_EQ(run.status, 128 + SIGTERM) << run.err;
  EXPECT_THAT(run.err, HasSubstr("[rank 1] it has not ended within 0.5 s and is killed"));
  EXPECT_TRUE(are_gone(ranks));
}

// A variable of a process that is running.
std::string variable_of(pid_t process, const std::string& name) {
  std::ifstream variables(fmt::format("/proc/{}/environ", process));
  for (std::string one; std::getline(variables, one, '\0');) {
    if (one.starts_with(name + "=")) return one.substr(name.size() + 1);
  }
  return "";
}

TEST(LaunchTest, EveryRunHasAPortAndASecretOfItsOwn) {
  std::set<std::string> secrets, ports;
  for (int run = 0; run < 2; ++run) {
    launch("", [&](pid_t launcher, const std::vector<pid_t>& ranks) {
      for (const pid_t rank : ranks) {
        // While a process begins to run another program it has no variables.
        EXPECT_TRUE(comes_true([&] { return !variable_of(rank, "MASTER_ADDR").empty(); }));
        secrets.insert(variable_of(rank, "TRACESTEP_COMM_SECRET"));
        ports.insert(variable_of(rank, "MASTER_PORT"));
        EXPECT_EQ(variable_of(rank, "MASTER_ADDR"), "127.0.0.1");
        EXPECT_EQ(variable_of(rank, "NCCL_SOCKET_IFNAME"), "=lo");
      }
      ::kill(launcher, SIGKILL);
    });
  }
  EXPECT_EQ(ports.size(), 2u);
  EXPECT_EQ(secrets.size(), 2u);
  for (const std::string& secret : secrets) {
    EXPECT_EQ(secret.size(), 64u);
    EXPECT_EQ(secret.find_first_not_of("0123456789abcdef"), std::string::npos);
  }
}

TEST(LaunchTest, RanksDoNotOutliveTheirLauncher) {
  std::vector<pid_t> ranks;
  launch("", [&](pid_t launcher, const auto& all) {
    ranks = all;
    ::kill(launcher, SIGKILL);
  });
  EXPECT_TRUE(are_gone(ranks));
  for (const pid_t rank : ranks) ::kill(rank, SIGKILL);
}

// The ranks have not begun, so each has nothing to save.
TEST(LaunchTest, ASignalToSaveReachesTheRanksAndEndsNothing) {
  std::vector<pid_t> ranks;
  const ProgramRun run = launch("--grace 0.5", [&](pid_t launcher, const auto& all) {
    ranks = all;
    ::kill(launcher, SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_NE(state_of(ranks[0]), 'Z');
    ::kill(launcher, SIGTERM);
  });
  EXPECT_EQ(run.status, 128 + SIGTERM) << run.err;
  EXPECT_THAT(run.err, HasSubstr("SIGUSR1 received: the ranks are asked to save"));
  EXPECT_THAT(run.err, HasSubstr("SIGUSR1 received: there is nothing to save"));
  EXPECT_TRUE(are_gone(ranks));
}

}  // namespace
}  // namespace tracestep
