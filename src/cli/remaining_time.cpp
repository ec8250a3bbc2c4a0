#include "cli/remaining_time.h"

#include <algorithm>

#include <fmt/format.h>

namespace tracestep::cli {
namespace {

double seconds_between(RemainingTime::Clock::time_point from, RemainingTime::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

std::string words_of_remaining(double seconds) {
  if (seconds < 90) return fmt::format("about {:.0f} s", seconds);
  if (seconds < 90 * 60) return fmt::format("about {:.0f} min", seconds / 60);
  return fmt::format("about {:.1f} h", seconds / 3600);
}

void RemainingTime::begin(double cost, Clock::time_point now) {
  cost_ = cost;
  share_ = 0;
  start_ = from_ = at_ = now;
}

void RemainingTime::reach(double share, Clock::time_point now) {
  share_ = share;
  at_ = now;
  if (share == 0) from_ = now;
  if (share < 1) return;
  done_ += cost_;
  seconds_ += seconds_between(start_, now);
  begin(0, now);
}

std::string RemainingTime::bar() const {
  const double done = done_ + share_ * cost_;
  return done <= 0 || planned_ <= 0 ? "" : bar_of(done / planned_);
}

std::string RemainingTime::text(Clock::time_point now) const {
  const double done = done_ + share_ * cost_;
  if (done <= 0) return {};
  // A cell of which nothing is known yet takes as long as those before it.
  const double seconds = seconds_ + (share_ > 0 ? seconds_between(from_, at_) : 0);
  const double left = std::max(0.0, planned_ - done) * seconds / done;
  return words_of_remaining(std::max(0.0, left - seconds_between(at_, now))) + " left";
}

std::string bar_of(double share) {
  constexpr std::size_t kWidth = 10;
  const auto full = static_cast<std::size_t>(kWidth * std::min(1.0, share));
  return fmt::format("[{}{}]", std::string(full, '#'), std::string(kWidth - full, '-'));
}

std::string spaced(const std::string& text) {
  return text.empty() ? text : text + "  ";
}

void CellProgress::begin(const std::string& what) {
  if (at_ > 0) left_.reach(1);
  ++at_;
  left_.begin(1);
  update(what);
}

void CellProgress::update(const std::string& what) {
  line_.update(
      fmt::format("{}/{}  {}{}{}", at_, count_, spaced(left_.bar()), spaced(left_.text()), what));
}

void SearchProgress::update(const std::string& trying, std::int64_t done, std::int64_t all,
                            Clock::time_point now) {
  const std::string sets =
      all > 0 ? fmt::format("{} of {} sets of changes weighed", done, all) : "";
  if (line_.is_shown()) {
    const std::string bar =
        all > 0 ? bar_of(static_cast<double>(done) / static_cast<double>(all)) : "";
    return line_.update(spaced(bar) + spaced(verdict_) + spaced(sets) + trying);
  }
  constexpr std::chrono::milliseconds kMoment{1000};
  if (is_said_ || now - start_ < kMoment) return;
  is_said_ = true;
  log_info("{}searching{}", verdict_.empty() ? "" : verdict_ + "; ",
           sets.empty() ? "" : ", " + sets);
}

}  // namespace tracestep::cli
