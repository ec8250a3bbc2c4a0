// What the device of a run reaches at best: the roof that rows of `bench` are held against. All
// runs are on one device.
#pragma once

#include <map>
#include <string>

#include "spec/run_spec.h"

namespace tracestep::cli {

// Measures each precision once, when it is first asked for.
class Roof {
 public:
  // As below; measured a few times more while `reached` is above it, since other work on the
  // machine may have held the first measurement down.
  double tflops_for(const RunSpec& run, double reached);

  // TFLOP/s of matrix products or multiply-adds in the run's precision, on its device; 0: the
  // device has no such figure. Takes about 0.1 s on a CPU, two seconds and up to 2 GiB on a GPU.
  double tflops(const RunSpec& run);

 private:
  std::map<std::string, double> known_;  // by precision
};

}  // namespace tracestep::cli
