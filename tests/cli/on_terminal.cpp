#include "cli/on_terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include <gtest/gtest.h>

#include "cli/run_binary.h"

namespace tracestep {

std::string no_terminal() {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  const char* const slave = master < 0 ? nullptr : ::ptsname(master);
  const bool is_there = slave != nullptr && ::access(slave, F_OK) == 0;
  const int error = errno;
  ::close(master);
  return is_there ? "" : std::string("no terminal can be made here: ") + std::strerror(error);
}

std::string on_terminal(const std::string& arguments, unsigned short columns,
                        std::vector<std::string> environment, int stream) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
  EXPECT_GE(master, 0);
  ::grantpt(master);
  ::unlockpt(master);
  const std::string slave = ::ptsname(master);
  const winsize size{.ws_row = 40, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  ::ioctl(master, TIOCSWINSZ, &size);
  const int held = ::open(slave.c_str(), O_RDWR | O_NOCTTY);  // so that nothing is lost at the end
  environment.emplace_back("TERM=xterm");
  const ProgramRun run = run_tracestep(
      words_of(arguments),
      {.environment = std::move(environment), .before_start = [&] { ::dup2(held, stream); }});
  EXPECT_EQ(run.status, 0) << run.err;
  std::string out;
  char chunk[4096];
  for (ssize_t n; (n = ::read(master, chunk, sizeof chunk)) > 0;) {
    out.append(chunk, static_cast<std::size_t>(n));
  }
  ::close(held);
  ::close(master);
  std::erase(out, '\r');
  return out;
}

namespace {

// The characters of a line from one column to another, without blanks at its ends.
std::string columns_of(const std::string& line, std::size_t begin, std::size_t end) {
  std::string out;
  std::size_t at = 0;
  for (const char c : line) {
    const bool begins = (static_cast<unsigned char>(c) & 0xc0u) != 0x80u;
    at += begins ? 1 : 0;
    if (at > begin && at <= end) out += c;
  }
  out.erase(0, std::min(out.find_first_not_of(' '), out.size()));
  out.erase(out.find_last_not_of(' ') + 1);
  return out;
}

}  // namespace

std::vector<std::string> headers_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> above;
  for (std::string line; std::getline(in, line);) {
    const bool is_rule =
        line.find("--") != std::string::npos && line.find_first_not_of("- ") == std::string::npos;
    if (line.empty()) above.clear();
    if (!line.empty() && !is_rule) above.push_back(line);
    if (!is_rule) continue;
    std::vector<std::string> out;
    for (std::size_t begin = 0; begin < line.size();) {
      const std::size_t end = std::min(line.find(' ', begin), line.size());
      std::string header;
      for (const std::string& part : above) {
        const std::string words = columns_of(part, begin, end);
        header += (header.empty() || words.empty() ? "" : " ") + words;
      }
      out.push_back(header);
      begin = std::min(line.find('-', end), line.size());
    }
    return out;
  }
  return {};
}

}  // namespace tracestep
