// What a person sees while a search goes on: on a terminal a line with a bar, elsewhere one notice
// where the search takes more than a moment.
#pragma once

#include <chrono>
#include <string>

#include "base/log.h"
#include "cli/remaining_time.h"

namespace tracestep::cli {

class SearchProgress {
 public:
  using Clock = RemainingTime::Clock;

  SearchProgress() { left_.plan(1); }
  // What is known before the search: "8.00 GiB do not fit". The notice begins with it.
  void know(std::string verdict) { verdict_ = std::move(verdict); }
  // `share`: how much of the search is done, from 0 to 1.
  void update(const std::string& trying, double share, Clock::time_point now = Clock::now());
  void done() { line_.done(); }

 private:
  RemainingTime left_;
  ProgressLine line_;
  std::string verdict_;
  Clock::time_point start_ = Clock::now();
  bool is_said_ = false;
};

}  // namespace tracestep::cli
