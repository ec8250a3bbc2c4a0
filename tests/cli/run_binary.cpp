#include "cli/run_binary.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

void redirect(int fd, const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || ::dup2(file, fd) < 0) ::_exit(126);
}

[[noreturn]] void become(const std::vector<std::string>& arguments, const RunHow& how,
                         const TempFolder& captured) {
  if (!how.folder.empty() && ::chdir(how.folder.c_str()) != 0) ::_exit(126);
  for (const std::string& variable : how.environment) {
    const std::size_t equals = variable.find('=');
    ::setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
  }
  redirect(STDOUT_FILENO, captured / "out");
  redirect(STDERR_FILENO, captured / "err");
  if (how.before_start) how.before_start();
  std::vector<char*> argv{const_cast<char*>("tracestep")};
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  ::execv(testing::program_path().c_str(), argv.data());
  ::_exit(127);
}

}  // namespace

ProgramRun run_tracestep(const std::vector<std::string>& arguments, const RunHow& how) {
  const TempFolder captured;
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork");
  if (child == 0) become(arguments, how, captured);
  if (how.while_running) {
    std::this_thread::sleep_for(std::chrono::milliseconds(how.delay_ms));
    how.while_running(child);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ProgramRun out;
  out.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  out.out = content_of(captured / "out");
  out.err = content_of(captured / "err");
  return out;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> out;
  std::string word;
  bool is_quoted = false, is_word = false;
  for (char c : text) {
    if (c == '\'') {
      is_quoted = !is_quoted;
      is_word = true;
    } else if (c == ' ' && !is_quoted) {
      if (is_word) out.push_back(std::exchange(word, {}));
      is_word = false;
    } else {
      word += c;
      is_word = true;
    }
  }
  if (is_word) out.push_back(word);
  return out;
}

}  // namespace tracestep
