#include "cli/child_processes.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <thread>

#include <fmt/format.h>

namespace tracestep {
namespace {

bool holds_within(std::chrono::seconds limit, const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// A line of /proc/PID/status, without its name.
std::string status_of(pid_t process, const std::string& name) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":\t")) return line.substr(name.size() + 2);
  }
  return {};
}

}  // namespace

std::vector<pid_t> children_of(pid_t parent) {
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", parent));
  std::vector<pid_t> out;
  for (pid_t child = 0; children >> child;) out.push_back(child);
  return out;
}

std::vector<pid_t> descendants_of(pid_t ancestor) {
  std::vector<pid_t> out = children_of(ancestor);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::vector<pid_t> more = children_of(out[i]);
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

char state_of(pid_t process) {
  const std::string state = status_of(process, "State");
  return state.empty() ? '\0' : state.front();
}

bool takes_signals(pid_t process) {
  const std::string blocked = status_of(process, "SigBlk");
  return !blocked.empty() && (std::stoull(blocked, nullptr, 16) >> (SIGUSR1 - 1)) % 2 == 1;
}

bool are_ended(const std::vector<pid_t>& processes) {
  return std::ranges::all_of(processes, [](pid_t process) {
    const char state = state_of(process);
    return state == 0 || state == 'Z';
  });
}

bool are_gone(const std::vector<pid_t>& processes) {
  return holds_within(std::chrono::seconds(10), [&] { return are_ended(processes); });
}

bool comes_true(const std::function<bool()>& condition) {
  return holds_within(std::chrono::seconds(20), condition);
}

}  // namespace tracestep
