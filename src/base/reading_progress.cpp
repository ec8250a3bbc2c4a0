#include "base/reading_progress.h"

#include <utility>

#include "base/units.h"

namespace tracestep {

ReadingProgress::ReadingProgress(std::string what, std::int64_t total,
                                 std::chrono::milliseconds patience)
    : what_(std::move(what)), total_(total), patience_(patience) {}

void ReadingProgress::update(std::int64_t done) {
  const auto waited = std::chrono::steady_clock::now() - start_;
  if (waited < patience_ || done <= 0 || done >= total_) return;
  if (!line_.is_shown() && has_logged_) return;
  const double part = static_cast<double>(done) / static_cast<double>(total_);
  const double waited_ms = std::chrono::duration<double, std::milli>(waited).count();
  const std::string text = fmt::format("{}: {:.0f} %, about {} to go", what_, 100 * part,
                                       format_duration_ms(waited_ms / part * (1 - part)));
  if (line_.is_shown()) return line_.update(text);
  log_info("{}", text);
  has_logged_ = true;
}

}  // namespace tracestep
