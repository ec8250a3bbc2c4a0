#include "cli/child_process.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/signals.h"

namespace tracestep::cli {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

[[noreturn]] void fail(const char* what, int error) {
  throw Error(ErrorCode::kFailed, "new process",
              fmt::format("{} is not possible: {}", what, std::strerror(error)));
}

// Opens a temporary file for a process's output: unlike with a pipe, writing to it never blocks.
File temporary_file() {
  File out(std::tmpfile(), &std::fclose);
  if (out == nullptr) fail("a temporary file", errno);
  return out;
}

std::string content_of(std::FILE* file) {
  std::rewind(file);
  std::string out;
  char chunk[4096];
  for (std::size_t n; (n = std::fread(chunk, 1, sizeof chunk, file)) > 0;) out.append(chunk, n);
  return out;
}

// Has this process get the signal `number` when `parent` ends; ends it at once if that is gone.
void end_with(pid_t parent, int number) {
  ::prctl(PR_SET_PDEATHSIG, number);
  if (::getppid() != parent) ::_exit(127);
}

// Reaps children that have ended, and writes the status of `child`. True: no child is left.
bool collect(pid_t child, int& status) {
  pid_t ended = 0;
  for (int state = 0; (ended = ::waitpid(-1, &state, WNOHANG)) > 0;) {
    if (ended == child) status = exit_status_of(state);
  }
  return ended < 0;
}

// Divides a new child of `parent` into two processes and returns in the second one, which leads a
// group of its own. The first one is its guard: it passes signals on to that group, kills it when
// `parent` is gone, and exits with the second one's status. Processes of the group that lose their
// parent become children of the guard, which waits for them. Calls only what may follow fork().
void leave_a_guard(pid_t parent) {
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t guard = ::getpid(), child = ::fork();
  if (child < 0) ::_exit(127);
  ::setpgid(child, child);  // in both, as either may be first
  if (child == 0) return end_with(guard, SIGKILL);
  int status = -1;  // of `child`, once it has ended
  for (bool is_asked_to_end = false;;) {
    if (::getppid() != parent) {
      ::kill(-child, SIGKILL);
      ::_exit(127);
    }
    const bool nothing_is_left = collect(child, status);
    if (status >= 0 && (nothing_is_left || !is_asked_to_end)) ::_exit(status);
    int number = 0;
    if (sigwait(&all, &number) != 0 || number == SIGCHLD || ::getppid() != parent) continue;
    is_asked_to_end = true;
    ::kill(-child, number);
  }
}

ProcessResult run(NewProcess process) {
  const File out = temporary_file(), err = temporary_file();
  process.out = fileno(out.get());
  process.err = fileno(err.get());
  const pid_t child = start_process(process);
  const PassedOn passed_on(child);
  int state = 0;
  while (::waitpid(child, &state, 0) < 0) {
    if (errno != EINTR) fail("waiting for a process", errno);
  }
  return {exit_status_of(state), content_of(out.get()), content_of(err.get())};
}

}  // namespace

pid_t start_process(const NewProcess& process) {
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) fail("starting a program", errno);
  if (child > 0) return child;
  ::setsid();
  end_with(parent, process.starts_others ? SIGTERM : SIGKILL);
  if (process.starts_others) leave_a_guard(parent);
  if (process.out >= 0) ::dup2(process.out, STDOUT_FILENO);
  if (process.err >= 0) ::dup2(process.err, STDERR_FILENO);
  for (const auto& [name, value] : process.variables) ::setenv(name.c_str(), value.c_str(), 1);
  become(process.program, process.words);
  ::dprintf(STDERR_FILENO, "%s cannot be started: %s\n", process.program.c_str(),
            std::strerror(errno));
  ::_exit(127);
}

void become(const std::string& program, const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::sigprocmask(SIG_SETMASK, &mask_before_signals(), nullptr);
  std::signal(SIGXFSZ, SIG_DFL);
  std::signal(SIGPIPE, SIG_DFL);
  ::execvp(program.c_str(), argv.data());
}

int exit_status_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

ProcessResult run_self(std::span<const std::string> arguments) {
  std::vector<std::string> words{"tracestep"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run({.program = "/proc/self/exe", .words = std::move(words)});
}

ProcessResult run_command(const std::string& command, std::span<const std::string> arguments) {
  std::vector<std::string> words{"sh", "-c", command + " \"$@\"", "sh"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run({.program = "/bin/sh", .words = std::move(words), .starts_others = true});
}

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "it said nothing";
  const std::size_t start = text.rfind('\n', end);
  return text.substr(start == std::string::npos ? 0 : start + 1, end - start);
}

}  // namespace tracestep::cli
