// Messages that the program writes to stderr while it works, by level, and one progress line, which
// only a terminal shows. Results are written to stdout by other code.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/env.h"

namespace tracestep {

// Overrides the level of TRACESTEP_LOG.
void set_log_level(LogLevel level);
LogLevel log_level();

// Writes `message` as one line (message_line() of base/utf8.h), above the progress line when one is
// showing.
void log_message(LogLevel level, std::string_view message);

// Logs from the thread that receives signals: it never waits for a reader of stderr or for another
// message, and writes nothing where it would have to. Throws nothing.
void log_at_once(LogLevel level, std::string_view message) noexcept;
// After a call with true, a message is dropped if nobody has read stderr for half a second, since
// somebody wants the program to end. Before that, a message waits for its reader without limit.
void let_messages_be_lost(bool may_be_lost);

template <class... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() < LogLevel::kWarn) return;
  log_message(LogLevel::kWarn, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() < LogLevel::kInfo) return;
  log_message(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}

// True when stderr is a terminal that can rewrite a line.
bool stderr_is_terminal();

// A line that is rewritten in place; one may exist at a time. Costs nothing if stderr is a file.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { done(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Shows `text`, cut to the terminal's width; at most twenty times a second.
  void update(std::string_view text);
  // Removes the line.
  void done();
  // True when updates are shown; if not, the caller can skip composing a text.
  bool is_shown() const { return shown_; }

 private:
  bool shown_;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace tracestep
