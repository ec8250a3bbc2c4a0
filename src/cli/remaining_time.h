// Estimates the remaining time of a grid from the relative costs of its cells.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.h"

namespace tracestep::cli {

// "about 3 min".
std::string words_of_remaining(double seconds);

class RemainingTime {
 public:
  using Clock = std::chrono::steady_clock;

  // Adds a cell that is to be measured; costs may have any unit.
  void plan(double cost) { planned_ += cost; }
  // A cell of this cost begins; what was under way is given up.
  void begin(double cost, Clock::time_point now = Clock::now());
  // Share of the cell that is done: 0 after its preparation, 1 at its end.
  void reach(double share, Clock::time_point now = Clock::now());
  // "[####------]": how much of all is done; empty before anything is done.
  std::string bar() const;
  // "about 3 min left", counting down until reach() knows better; empty before anything is done.
  std::string text(Clock::time_point now = Clock::now()) const;

 private:
  double planned_ = 0;
  double done_ = 0, seconds_ = 0;                       // of the cells that have ended
  double cost_ = 0, share_ = 0;                         // of the one under way
  Clock::time_point start_ = {}, from_ = {}, at_ = {};  // begin of the cell and of its share; now
};

// "[####------]".
std::string bar_of(double share);

// "text  ", or nothing for an empty text: a part of a progress line.
std::string spaced(const std::string& text);

// The progress line of a loop over cells of like cost: "3/12  [##--------]  about 20 s left  small
// step".
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
  std::size_t count_, at_ = 0;
  RemainingTime left_;
  ProgressLine line_;
};

// Shows a person that a search goes on: on a terminal by a line with a bar, elsewhere by one notice
// if the search takes more than a moment. It predicts no time: the rest of a search may take
// anything from nothing to all of it.
class SearchProgress {
 public:
  using Clock = RemainingTime::Clock;

  // Sets a fact that holds before the search, "8.00 GiB do not fit", with which the notice begins.
  void know(std::string verdict) { verdict_ = std::move(verdict); }
  // Reports that `done` sets of changes of `all` are weighed; 0: their number is not known.
  void update(const std::string& trying, std::int64_t done, std::int64_t all,
              Clock::time_point now = Clock::now());
  void done() { line_.done(); }

 private:
  ProgressLine line_;
  std::string verdict_;
  Clock::time_point start_ = Clock::now();
  bool is_said_ = false;
};

}  // namespace tracestep::cli
