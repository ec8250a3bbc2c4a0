// Corrects kernel times for what rates leave out: in a step, a product finds its operands in memory
// and not in a cache, and clocks are at the power limit. The correction is by kernel and duration,
// because similar launches of one kernel are affected alike.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace tracestep {

class Paces {
 public:
  // Adds a launch that should take `expected_us` by its rates, and took `us` in a step.
  void add(const std::string& kernel, double expected_us, double us);

  // Returns the factor for a launch: the geometric mean of us / expected_us over the launches of
  // the kernel, each limited to 0.74 to 1.35. Launches of similar duration weigh more, with a
  // standard deviation of a factor of two in time (the estimate of Nadaraya and Watson, 1964), and
  // half a launch with ratio 1 is added. More work still never takes less time. 1 for a kernel
  // without launches.
  double factor(const std::string& kernel, double expected_us) const;

 private:
  struct Launch {
    double log_us = 0, log_ratio = 0;
  };

  std::map<std::string, std::vector<Launch>> launches_;
};

}  // namespace tracestep
