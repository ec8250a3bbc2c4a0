// The highest arithmetic speed of a device, with which rows of `bench` are compared. All runs must
// be on one device.
#pragma once

#include <map>
#include <string>

#include "spec/run_spec.h"

namespace tracestep::cli {

// Measures each precision once, when it is first asked for.
class Roof {
 public:
  // As tflops(), but measured a few times more while `reached` (TFLOP/s) is higher, since other
  // work on the machine may have slowed the first measurement.
  double tflops_for(const RunSpec& run, double reached);

  // TFLOP/s of matrix products or multiply-adds in the run's precision, on its device; 0: the
  // device has no such figure. Takes about 0.1 s on a CPU, two seconds and up to 2 GiB on a GPU.
  double tflops(const RunSpec& run);

 private:
  std::map<std::string, double> known_;  // by precision
};

}  // namespace tracestep::cli
