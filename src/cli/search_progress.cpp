#include "cli/search_progress.h"

namespace tracestep::cli {

void SearchProgress::update(const std::string& trying, double share, Clock::time_point now) {
  if (share == 0) {
    left_.begin(1, now);
  } else {
    left_.reach(std::min(share, 0.999), now);
  }
  if (line_.is_shown()) {
    return line_.update(spaced(left_.bar()) + spaced(verdict_) + spaced(left_.text(now)) + trying);
  }
  constexpr std::chrono::milliseconds kMoment{1000};
  if (is_said_ || now - start_ < kMoment) return;
  is_said_ = true;
  log_info("{}searching{}", verdict_.empty() ? "" : verdict_ + "; ",
           left_.text(now).empty() ? "" : ", " + left_.text(now));
}

}  // namespace tracestep::cli
