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
// process, `delay_ms` after the start.
struct RunHow {
  std::filesystem::path folder = {};
  std::vector<std::string> environment = {};  // "NAME=value", added to this one
  std::function<void(pid_t)> while_running = {};
  int delay_ms = 0;
  std::function<void()> before_start = {};  // in the new process: limits of its resources
};

ProgramRun run_tracestep(const std::vector<std::string>& arguments, const RunHow& how = {});

// Splits `text` into the words of a command line: at spaces, '...' kept together.
std::vector<std::string> words_of(const std::string& text);

}  // namespace tracestep
