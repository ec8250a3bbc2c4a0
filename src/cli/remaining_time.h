// Estimates the remaining time of a grid from the relative costs of its cells.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.h"

namespace tracestep::cli {

// A rough time in words: "about 3 min".
std::string words_of_remaining(double seconds);

class RemainingTime {
 public:
  using Clock = std::chrono::steady_clock;

  // Adds a cell that is to be measured; costs may have any unit.
  void plan(double cost) { planned_ += cost; }
  // Begins a cell of this cost. A cell that is not finished is abandoned.
  void begin(double cost, Clock::time_point now = Clock::now());
  // Sets the share of the cell that is done: 0 after its preparation, 1 at its end.
  void reach(double share, Clock::time_point now = Clock::now());
  // The share of all work that is done, drawn as "[####------]"; empty before anything is done.
  std::string bar() const;
  // The remaining time, "about 3 min left", counted down until reach() updates it; empty before
  // anything is done.
  std::string text(Clock::time_point now = Clock::now()) const;

 private:
  double planned_ = 0;
  double done_ = 0, seconds_ = 0;  // Cost and time of the cells that have ended.
  double cost_ = 0, share_ = 0;    // Cost of the running cell, and the share of it that is done.
  // When the running cell began, when its measured share began, and the time of the last call.
  Clock::time_point start_ = {}, from_ = {}, at_ = {};
};

// A share drawn as "[####------]".
std::string bar_of(double share);

// A text with two spaces after it, as a part of a progress line; empty for an empty text.
std::string spaced(const std::string& text);

// The progress line of a loop over cells of like cost: "3/12  [##--------]  about 20 s left  small
// step".
class CellProgress {
 public:
  explicit CellProgress(std::size_t count) : count_(count) {
    left_.plan(static_cast<double>(count));
  }
  // Begins the next cell; the one before it is done.
  void begin(const std::string& what);
  // Shows what the running cell does now.
  void update(const std::string& what);
  // Shows work that belongs to no cell.
  void aside(const std::string& what) { line_.update(what); }

 private:
  std::size_t count_, at_ = 0;
  RemainingTime left_;
  ProgressLine line_;
};

// Shows that a search is still running: on a terminal by a line with a bar, elsewhere by one notice
// if it takes more than a moment. It predicts no time, because nobody can know how long the rest of
// a search takes.
class SearchProgress {
 public:
  using Clock = RemainingTime::Clock;

  // Sets a fact that is known before the search, such as "8.00 GiB do not fit", with which the
  // notice begins.
  void know(std::string verdict) { verdict_ = std::move(verdict); }
  // Reports that `done` of `all` sets of changes are examined; 0: the total is not known.
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
