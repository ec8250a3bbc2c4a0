// Runs this program in another process, for measurements that need a fresh start.
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

}  // namespace tracestep::cli
