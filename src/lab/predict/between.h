// Models the time of a step beyond its kernels: gaps between them, and the host that launches them.
#pragma once

#include <span>

#include "lab/predict/calibration.h"

namespace tracestep {

// The model for one executor.
struct Between {
  double gap_us = 0;    // for each kernel
  double slowdown = 0;  // relative: kernels one behind the other beside kernels timed by themselves
  // The host's time for launching a product (the library chooses a kernel first) and any other
  // kernel; only where kernels run asynchronously.
  double product_issue_us = 0, other_issue_us = 0;
  // In a calibration nine of ten steps were issued in at most (1 + this) times as long as that, and
  // at least as much of it.
  double host_spread = 0;

  // The time from the start of a kernel until the next one can begin.
  double until_next_us(double kernel_us) const { return kernel_us * (1 + slowdown) + gap_us; }
  double issue_us(KernelClass kind) const {
    return kind == KernelClass::kGemm ? product_issue_us : other_issue_us;
  }
  double issue_us(const CalibratedStep& step) const;
};

Between between_kernels(std::span<const CalibratedStep* const> steps, ExecutorKind executor,
                        bool is_asynchronous);

// When a queue of launches has been worked off: a kernel runs when the host has launched it and the
// one before has ended.
class LaunchQueue {
 public:
  void add(double issue_us, double kernel_us);
  double ended_us() const { return ended_us_; }

 private:
  double issued_us_ = 0, ended_us_ = 0;
};

}  // namespace tracestep
