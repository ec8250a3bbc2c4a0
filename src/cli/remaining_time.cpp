#include "cli/remaining_time.h"

#include <algorithm>

#include <fmt/format.h>

namespace tracestep::cli {

void RemainingTime::finish(double cost, double seconds) {
  done_ += cost;
  seconds_ += seconds;
}

std::string RemainingTime::text() const {
  if (done_ <= 0) return {};
  const double left = std::max(0.0, planned_ - done_) * seconds_ / done_;
  if (left < 90) return fmt::format("about {:.0f} s left", left);
  if (left < 90 * 60) return fmt::format("about {:.0f} min left", left / 60);
  return fmt::format("about {:.1f} h left", left / 3600);
}

}  // namespace tracestep::cli
