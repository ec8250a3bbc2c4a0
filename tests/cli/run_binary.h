// Runs the program as a person does, and returns what it printed and how it ended.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace tracestep {

struct ProgramRun {
  int status = -1;  // exit status; 128 + signal when a signal ended it
  std::string out, err;
};

// `folder`: the working directory; empty: this one. `while_running` is called once, with the
// process, `delay_ms` after the start. `in_child` is called in the new process before it becomes
// the program: for limits.
struct RunHow {
  std::filesystem::path folder = {};
  std::vector<std::string> environment = {};  // "NAME=value", added to this one
  std::function<void(pid_t)> while_running = {};
  int delay_ms = 0;
  std::function<void()> in_child = {};
};

ProgramRun run_tracestep(const std::vector<std::string>& arguments, const RunHow& how = {});

// `text` as the words of a command line: separated by spaces, '...' kept together.
std::vector<std::string> words_of(const std::string& text);

}  // namespace tracestep
