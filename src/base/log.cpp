#include "base/log.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <mutex>
#include <thread>

#include "base/utf8.h"

namespace tracestep {
namespace {

constexpr std::chrono::milliseconds kRedrawInterval{50};
constexpr int kDefaultColumns = 80;
constexpr std::chrono::milliseconds kBetweenLooks{50}, kPatience{500};
// How long log_at_once() naps between attempts to take the lock, and after how many it gives up.
constexpr std::chrono::milliseconds kNap{1};
constexpr int kMostLooks = 100;
constexpr const char* kEraseLine = "\r\x1b[K";

// Guards stderr and `progress_text`, the line that has to be drawn again under a message.
std::mutex mutex;
std::string progress_text;
std::atomic<int> level_override{-1};
std::atomic<bool> may_be_lost{false};

int terminal_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefaultColumns;
  return size.ws_col;
}

// Returns the first `columns` characters of a UTF-8 text, each counted as one column.
std::string_view cut(std::string_view text, int columns) {
  int seen = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool starts = (static_cast<unsigned char>(text[i]) & 0xc0u) != 0x80u;
    if (starts && seen++ == columns) return text.substr(0, i);
  }
  return text;
}

// True when stderr takes bytes, or a write will fail at once; false when `limit` is over.
bool wait_for_reader(std::chrono::milliseconds limit) {
  pollfd out{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  const int ready = ::poll(&out, 1, static_cast<int>(limit.count()));
  return ready > 0 || (ready < 0 && errno != EINTR);
}

// Waits until stderr takes bytes; false if it takes none for kPatience while messages may be lost.
bool wait_as_long_as_allowed() {
  std::chrono::milliseconds waited{0};
  while (!wait_for_reader(kBetweenLooks)) {
    if (may_be_lost) waited += kBetweenLooks;
    if (waited >= kPatience) return false;
  }
  return true;
}

// Writes to stderr, in pieces of PIPE_BUF, which a pipe takes at once, as long as wait() is true.
template <class Wait>
void put(std::string_view text, const Wait& wait) {
  while (!text.empty() && wait()) {
    const ssize_t written =
        ::write(STDERR_FILENO, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    if (written < 0 && errno != EINTR && errno != EAGAIN) return;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void put(std::string_view text) {
  put(text, wait_as_long_as_allowed);
}

// Returns the message as a line, and the progress line below it again. `mutex` must be held.
std::string line_of(LogLevel level, std::string_view message) {
  return fmt::format("{}{}{}\n{}", progress_text.empty() ? "" : kEraseLine,
                     level == LogLevel::kWarn ? "warning: " : "", message_line(message),
                     progress_text);
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
  put(line_of(level, message));
}

void log_at_once(LogLevel level, std::string_view message) noexcept try {
  if (log_level() < level) return;
  std::unique_lock lock(mutex, std::defer_lock);
  for (int looks = 0; !lock.try_lock(); ++looks) {
    if (looks == kMostLooks) return;
    std::this_thread::sleep_for(kNap);
  }
  put(line_of(level, message), [] { return wait_for_reader(std::chrono::milliseconds(0)); });
} catch (...) {  // no memory for the line
}

void let_messages_be_lost(bool value) {
  may_be_lost = value;
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
  const std::lock_guard lock(mutex);
  const std::string line = message_line(std::string(text));
  progress_text = cut(line, terminal_columns() - 1);
  put(kEraseLine + progress_text);
}

void ProgressLine::done() {
  if (!shown_) return;
  const std::lock_guard lock(mutex);
  if (!progress_text.empty()) put(kEraseLine);
  progress_text.clear();
  next_ = {};
}

}  // namespace tracestep
