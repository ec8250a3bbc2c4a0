#include "lab/compare/gate.h"

#include <cmath>

#include <fmt/format.h>

namespace tracestep {
namespace {

bool is_known(const std::string& status) {
  return status == "ok" || status == "oom";
}

std::string shown(const std::string& status) {
  return status.empty() ? "none" : status;
}

}  // namespace

void Gate::regress(const std::string& label, const std::string& why) {
  if (fail_percent_) out_.regressions.push_back(fmt::format("{}: {}", label, why));
}

void Gate::undecide(const std::string& label, const std::string& why) {
  if (fail_percent_) out_.undecided.push_back(fmt::format("{}: {}", label, why));
}

void Gate::judge_statuses(const std::string& label, const std::string& a, const std::string& b) {
  const std::string change = fmt::format("status {} → {}", shown(a), shown(b));
  if (a == "ok" && !b.empty()) {
    regress(label, change);
  } else if (!is_known(a) || !is_known(b)) {
    undecide(label, change);
  }
}

void Gate::judge_change(const std::string& label, const Comparison& c) {
  if (!fail_percent_) return;
  const double limit = 1 + *fail_percent_ / 100;
  const std::string figures =
      std::isfinite(c.low) ? fmt::format("{:+.1f} % ({:+.1f} to {:+.1f} %)", 100 * (c.ratio - 1),
                                         100 * (c.low - 1), 100 * (c.high - 1))
                           : "too few processes on a side to tell, or a median of zero";
  // Does not use `c.change`, which depends on the margin. An interval that ends below the limit
  // passes, however wide it is.
  if (is_slower(c) && c.ratio > limit) {
    regress(label, figures);
  } else if (!(c.high <= limit)) {
    undecide(label, fmt::format("{}, {}", name_of(c.change), figures));
  }
}

void Gate::finish(bool is_empty) {
  if (!is_empty || !out_.regressions.empty() || !out_.undecided.empty()) return;
  undecide("all rows", "nothing was compared in both files");
}

}  // namespace tracestep
