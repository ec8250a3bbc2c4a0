// How much longer kernels take in steps than their rates say, by how long they take: what a rate
// leaves out (a product in a step finds its operands in memory and clocks at what a power limit
// allows; alone it does not) is alike for launches of one kernel that are alike.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace tracestep {

class Paces {
 public:
  // A launch of the kernel that takes `expected_us` by its rates and took `us` in a step.
  void add(const std::string& kernel, double expected_us, double us);

  // The mean of the logarithms of us / expected_us, each of them within 0.74 to 1.35; weighted by
  // how close a launch is, a factor of two in time being one standard deviation (the estimate of
  // Nadaraya and Watson, 1964), and drawn towards 1 as by half a launch. So more work still takes
  // no less time. 1 for a kernel without launches.
  double factor(const std::string& kernel, double expected_us) const;

 private:
  struct Launch {
    double log_us = 0, log_ratio = 0;
  };

  std::map<std::string, std::vector<Launch>> launches_;
};

}  // namespace tracestep
