// Models the time of a step outside its kernels: gaps between kernels, and the host's time for
// launching them.
#pragma once

#include <span>

#include "lab/predict/calibration.h"

namespace tracestep {

// The parameters of the model for one executor.
struct Between {
  double gap_us = 0;  // The gap after each kernel.
  // How much longer kernels take in a sequence than kernels timed alone, or in the quietest of
  // several rounds: 0.1 is 10 %.
  double slowdown = 0;
  // The host's time for launching a matrix product, for which the library chooses a kernel first,
  // and for any other kernel. Only if kernels run asynchronously.
  double product_issue_us = 0, other_issue_us = 0;
  // The spread of the host's time: in a calibration, nine of ten steps were issued in between 1 /
  // (1 + host_spread) and (1 + host_spread) times the modelled time.
  double host_spread = 0;

  // Returns the time from the start of a kernel until the next one can begin.
  double until_next_us(double kernel_us) const { return kernel_us * (1 + slowdown) + gap_us; }
  double issue_us(KernelClass kind) const {
    return kind == KernelClass::kGemm ? product_issue_us : other_issue_us;
  }
  double issue_us(const CalibratedStep& step) const;
};

Between between_kernels(std::span<const CalibratedStep* const> steps, ExecutorKind executor,
                        bool is_asynchronous);

// Computes when a queue of launches is finished: a kernel starts when the host has launched it and
// the kernel before it has ended.
class LaunchQueue {
 public:
  void add(double issue_us, double kernel_us);
  double ended_us() const { return ended_us_; }

 private:
  double issued_us_ = 0, ended_us_ = 0;
};

}  // namespace tracestep
