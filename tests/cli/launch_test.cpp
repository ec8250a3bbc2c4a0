// launch without MPI: ranks as plain processes, and how it ends those that do not end themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "cli/run_binary.h"
#include "support/joined_processes.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;

std::vector<pid_t> children_of(pid_t parent) {
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", parent));
  std::vector<pid_t> out;
  for (pid_t child = 0; children >> child;) out.push_back(child);
  return out;
}

bool runs_its_command(pid_t rank) {
  std::ifstream words(fmt::format("/proc/{}/cmdline", rank));
  std::string program, command;
  std::getline(words, program, '\0');
  std::getline(words, command, '\0');
  return command == "bench";
}

char state_of(pid_t process) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("State:\t") && line.size() > 7) return line[7];
  }
  return 0;
}

// Stops rank 1 at its start, so that rank 0 waits for it, and returns both. Until it has stopped, a
// signal that follows would be handled first.
std::vector<pid_t> with_a_stuck_rank(pid_t launch) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < end) {
    const std::vector<pid_t> ranks = children_of(launch);
    if (ranks.size() < 2 || !runs_its_command(ranks[1])) continue;
    ::kill(ranks[1], SIGSTOP);
    while (state_of(ranks[1]) != 'T' && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return ranks;
  }
  ADD_FAILURE() << "no ranks";
  return {};
}

// Dead ones count as gone, whether or not somebody has waited for them.
bool is_gone(pid_t process) {
  const char state = state_of(process);
  return state == 0 || state == 'Z';
}

bool are_gone(const std::vector<pid_t>& processes) {
  return std::ranges::all_of(processes, is_gone);
}

ProgramRun launch(const std::string& options, const std::function<void(pid_t)>& while_running) {
  return run_tracestep(
      words_of(fmt::format("launch -n 2 --port {} {} -- bench --size tiny --device cuda "
                           "--parallel dp=2",
                           testing::free_port(), options)),
      {.while_running = while_running});
}

TEST(LaunchTest, ARankThatDoesNotEndWhenAskedIsKilled) {
  std::vector<pid_t> ranks;
  std::chrono::steady_clock::time_point asked;
  const ProgramRun run = launch("--grace 0.5", [&](pid_t launcher) {
    ranks = with_a_stuck_rank(launcher);
    asked = std::chrono::steady_clock::now();
    ::kill(launcher, SIGTERM);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(5));
  EXPECT_EQ(run.status, 128 + SIGTERM) << run.err;
  EXPECT_THAT(run.err, HasSubstr("[rank 1] it has not ended within 0.5 s and is killed"));
  EXPECT_TRUE(are_gone(ranks));
}

TEST(LaunchTest, RanksDoNotOutliveTheirLauncher) {
  std::vector<pid_t> ranks;
  launch("", [&](pid_t launcher) {
    ranks = with_a_stuck_rank(launcher);
    ::kill(launcher, SIGKILL);
  });
  for (int i = 0; i < 200 && !are_gone(ranks); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(are_gone(ranks));
  for (const pid_t rank : ranks) ::kill(rank, SIGKILL);
}

}  // namespace
}  // namespace tracestep
