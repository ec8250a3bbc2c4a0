#include "cli/remaining_time.h"

#include <algorithm>

#include <fmt/format.h>

namespace tracestep::cli {

std::string words_of_remaining(double seconds) {
  if (seconds < 90) return fmt::format("about {:.0f} s", seconds);
  if (seconds < 90 * 60) return fmt::format("about {:.0f} min", seconds / 60);
  return fmt::format("about {:.1f} h", seconds / 3600);
}

void RemainingTime::finish(double cost, double seconds) {
  done_ += cost;
  seconds_ += seconds;
}

std::string RemainingTime::text() const {
  if (done_ <= 0) return {};
  return words_of_remaining(std::max(0.0, planned_ - done_) * seconds_ / done_) + " left";
}

void CellProgress::begin(const std::string& what) {
  const Clock::time_point now = Clock::now();
  if (at_ > 0) left_.finish(1, std::chrono::duration<double>(now - start_).count());
  ++at_;
  start_ = now;
  update(what);
}

void CellProgress::update(const std::string& what) {
  line_.update(fmt::format("{}/{}  {}  {}", at_, count_, what, left_.text()));
}

}  // namespace tracestep::cli
