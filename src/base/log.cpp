#include "base/log.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <mutex>

#include "base/utf8.h"

namespace tracestep {
namespace {

constexpr std::chrono::milliseconds kRedrawInterval{50};
constexpr int kDefaultColumns = 80;
constexpr const char* kEraseLine = "\r\x1b[K";

// Guards stderr and `progress_text`, the line that has to be drawn again under a message.
std::mutex mutex;
std::string progress_text;
std::atomic<int> level_override{-1};

int terminal_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefaultColumns;
  return size.ws_col;
}

// The first `columns` characters of a UTF-8 text, one column each.
std::string_view cut(std::string_view text, int columns) {
  int seen = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool starts = (static_cast<unsigned char>(text[i]) & 0xc0u) != 0x80u;
    if (starts && seen++ == columns) return text.substr(0, i);
  }
  return text;
}

void put(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace

void set_log_level(LogLevel level) {
  level_override = static_cast<int>(level);
}

LogLevel log_level() {
  if (const int level = level_override; level >= 0) return static_cast<LogLevel>(level);
  const LogLevel level = env::log_level();
  level_override = static_cast<int>(level);
  return level;
}

void log_message(LogLevel level, std::string_view message) {
  const std::lock_guard lock(mutex);
  if (!progress_text.empty()) put(kEraseLine);
  if (level == LogLevel::kWarn) put("warning: ");
  put(message_line(message));
  put("\n");
  put(progress_text);
  std::fflush(stderr);
}

bool stderr_is_terminal() {
  return isatty(STDERR_FILENO) != 0 && !env::dumb_terminal();
}

ProgressLine::ProgressLine() : shown_(stderr_is_terminal() && log_level() >= LogLevel::kInfo) {}

void ProgressLine::update(std::string_view text) {
  if (!shown_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + kRedrawInterval;
  const std::string line = message_line(text);
  const std::lock_guard lock(mutex);
  progress_text = cut(line, terminal_columns() - 1);
  put(kEraseLine);
  put(progress_text);
  std::fflush(stderr);
}

void ProgressLine::done() {
  if (!shown_) return;
  const std::lock_guard lock(mutex);
  if (!progress_text.empty()) put(kEraseLine);
  progress_text.clear();
  next_ = {};
  std::fflush(stderr);
}

}  // namespace tracestep
