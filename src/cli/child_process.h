// Runs this program, or any command, in another process.
#pragma once

#include <span>
#include <string>

namespace tracestep::cli {

struct ProcessResult {
  int status = 0;  // exit status; 128 + signal when one ended it
  std::string out, err;
};

// Runs this program with these arguments and waits for it. Error{kFailed} when it cannot start.
ProcessResult run_self(std::span<const std::string> arguments);
// Runs a command line by the shell, with `arguments` as further words after it.
ProcessResult run_command(const std::string& command, std::span<const std::string> arguments);

// The last line of a process's output: where a failed one says why.
std::string last_line(const std::string& text);

}  // namespace tracestep::cli
