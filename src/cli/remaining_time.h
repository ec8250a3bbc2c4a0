// How long the rest of a grid will take, by what its cells cost beside each other.
#pragma once

#include <string>

namespace tracestep::cli {

class RemainingTime {
 public:
  // A cell that is to be measured; costs may have any unit.
  void plan(double cost) { planned_ += cost; }
  // One of them is done.
  void finish(double cost, double seconds);
  // "about 3 min left"; empty before the first cell is done.
  std::string text() const;

 private:
  double planned_ = 0, done_ = 0, seconds_ = 0;
};

}  // namespace tracestep::cli
