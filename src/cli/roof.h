// What the device of a run reaches at best: the roof that rows of `bench` are held against.
#pragma once

#include <map>
#include <string>

#include "cli/options.h"

namespace tracestep::cli {

// Measures each precision once, when it is first asked for.
class Roof {
 public:
  explicit Roof(const RunOptions& run) : run_(run) {}

  // As below; measured a few times more while `reached` is above it, since other work on the
  // machine may have held the first measurement down.
  double tflops_for(const std::string& precision, double reached);

  // TFLOP/s of matrix products or multiply-adds in this precision; 0: the device has no such
  // figure. Takes about 0.1 s on a CPU, two seconds and up to 2 GiB on a GPU.
  double tflops(const std::string& precision);

 private:
  double measure(const std::string& precision) const;

  RunOptions run_;
  std::map<std::string, double> known_;
};

}  // namespace tracestep::cli
