// Estimates the remaining time of a grid from the relative costs of its cells.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "base/log.h"

namespace tracestep::cli {

// "about 3 min".
std::string words_of_remaining(double seconds);

class RemainingTime {
 public:
  // Adds a cell that is to be measured; costs may have any unit.
  void plan(double cost) { planned_ += cost; }
  // Reports that a cell is done.
  void finish(double cost, double seconds);
  // "about 3 min left"; empty before the first cell is done.
  std::string text() const;

 private:
  double planned_ = 0, done_ = 0, seconds_ = 0;
};

// The progress line of a loop over cells of like cost: "3/12  small step  about 20 s left".
class CellProgress {
 public:
  explicit CellProgress(std::size_t count) : count_(count) {
    left_.plan(static_cast<double>(count));
  }
  // The next cell begins; the one before it is done.
  void begin(const std::string& what);
  // The cell under way does something else now.
  void update(const std::string& what);
  // Something beside the cells begins.
  void aside(const std::string& what) { line_.update(what); }

 private:
  using Clock = std::chrono::steady_clock;
  std::size_t count_, at_ = 0;
  Clock::time_point start_{};
  RemainingTime left_;
  ProgressLine line_;
};

}  // namespace tracestep::cli
