#include "cli/child_process.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/signals.h"

namespace tracestep::cli {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

[[noreturn]] void fail(const char* what, int error) {
  throw Error(ErrorCode::kFailed, "new process",
              fmt::format("{} is not possible: {}", what, std::strerror(error)));
}

// The output goes to files, so that neither stream can block the process.
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

// `words`: with the name of the program first.
ProcessResult run(const char* program, std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const File out = temporary_file(), err = temporary_file();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(out.get()), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(err.get()), STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  sigset_t ignored;
  sigemptyset(&ignored);
  sigaddset(&ignored, SIGXFSZ);
  sigaddset(&ignored, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &ignored);
  posix_spawnattr_setsigmask(&attributes, &mask_before_signals());
  pid_t child = 0;
  const int error = posix_spawn(&child, program, &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail("starting a program", error);
  int state = 0;
  while (waitpid(child, &state, 0) < 0) {
    if (errno != EINTR) fail("waiting for a process", errno);
  }
  return {WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state), content_of(out.get()),
          content_of(err.get())};
}

}  // namespace

ProcessResult run_self(std::span<const std::string> arguments) {
  std::vector<std::string> words{"tracestep"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run("/proc/self/exe", std::move(words));
}

ProcessResult run_command(const std::string& command, std::span<const std::string> arguments) {
  std::vector<std::string> words{"sh", "-c", command + " \"$@\"", "sh"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run("/bin/sh", std::move(words));
}

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "it said nothing";
  const std::size_t start = text.rfind('\n', end);
  return text.substr(start == std::string::npos ? 0 : start + 1, end - start);
}

}  // namespace tracestep::cli
