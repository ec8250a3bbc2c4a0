// Starts other processes: this program again, or a shell command. No process outlives this one,
// however this one ends.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tracestep::cli {

struct NewProcess {
  std::string program = {};             // The program, looked up in PATH as a shell does.
  std::vector<std::string> words = {};  // The arguments; the first one is the program's name.
  // Environment variables besides those of this process.
  std::vector<std::pair<std::string, std::string>> variables = {};
  int out = -1, err = -1;  // File descriptors of the output; -1: those of this process.
  // True if the process may start others that do not end when it ends, as a shell does.
  bool starts_others = false;
};

// Starts a process in its own session: a terminal's signals reach it only through this process, and
// reading a password fails instead of waiting for a terminal. When this process ends, the child is
// killed, and with `starts_others` everything that it has started. Signals to the returned id then
// reach those processes too, and its status is available when all that received one have ended.
// Call it from the main thread, because the system takes the end of the calling thread for that of
// the process. Throws Error{kFailed} if no process can be started.
pid_t start_process(const NewProcess& process);

// Replaces this process by another program, with the signal handling with which this process was
// started. Returns only if that fails, with errno set.
void become(const std::string& program, const std::vector<std::string>& words);

// The exit status as a shell reports it: 128 + signal if a signal ended the process.
int exit_status_of(int wait_status);

struct ProcessResult {
  int status = 0;  // The exit status; 128 + signal if a signal ended the process.
  std::string out, err;
};

// Runs this program with these arguments and waits for it. A signal that ends this program is
// passed on. Error{kFailed} when it cannot start.
ProcessResult run_self(std::span<const std::string> arguments);
// Runs a command line by the shell, with `arguments` as further words after it.
ProcessResult run_command(const std::string& command, std::span<const std::string> arguments);

// The last line of a process's output, in which a failed process says why.
std::string last_line(const std::string& text);

}  // namespace tracestep::cli
