// Starts other processes: this program again, or a command of the shell. None outlives this one,
// however it ends.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tracestep::cli {

struct NewProcess {
  std::string program = {};                                         // found as a shell finds it
  std::vector<std::string> words = {};                              // the name of the program first
  std::vector<std::pair<std::string, std::string>> variables = {};  // besides those of this process
  int out = -1, err = -1;                                           // -1: those of this process
  // True if it may start processes that do not end with it by themselves, as a shell does.
  bool starts_others = false;
};

// Starts it in a session of its own, so that a terminal's signals reach it through this process
// alone, and reading a password fails instead of waiting for a terminal that it does not have. When
// this process is gone, it is killed, with what it has started where it `starts_others`. Signals to
// the returned id reach those too, and its status comes when they have ended, if one was sent.
// Call it from the main thread: the system takes the end of the calling thread for that of the
// process. Error{kFailed} when the system starts no process.
pid_t start_process(const NewProcess& process);

// Becomes another program, with signals as they were when this one started; returns, with errno
// set, only where that is not possible.
void become(const std::string& program, const std::vector<std::string>& words);

// An exit status as a shell has it: 128 + signal where one ended the process.
int exit_status_of(int wait_status);

struct ProcessResult {
  int status = 0;  // exit status; 128 + signal when one ended it
  std::string out, err;
};

// Runs this program with these arguments and waits for it. A signal that ends this program is
// passed on. Error{kFailed} when it cannot start.
ProcessResult run_self(std::span<const std::string> arguments);
// Runs a command line by the shell, with `arguments` as further words after it.
ProcessResult run_command(const std::string& command, std::span<const std::string> arguments);

// The last line of a process's output: where a failed one says why.
std::string last_line(const std::string& text);

}  // namespace tracestep::cli
