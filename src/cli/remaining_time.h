// Estimates the remaining time of a grid from the relative costs of its cells.
#pragma once

#include <string>

namespace tracestep::cli {

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

}  // namespace tracestep::cli
