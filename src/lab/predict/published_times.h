// Predicts the time of a step on a device that need not be in this machine, from its maker's peaks
// and the shares of them that devices of its generation reach. Nothing is measured.
#pragma once

#include <memory>

#include "lab/predict/time_model.h"

namespace tracestep {

// The shares of a data sheet's peaks that kernels reach. data/generations.csv has them by device
// generation, with the measurements that they were fitted to; the defaults here are for an unknown
// device.
struct ReachedShares {
  double products = 0.68;  // The share of the peak of 16-bit products.
  // The share of the same peak that tiled attention kernels reach in long contexts.
  double attention = 0.32;
  double half_context =
      // The context at which attention reaches half of its share; 0: it reaches the share in any
      // context.
      0;
  // True: a product takes the sum of its computing and its memory time; false: the longer of the
  // two.
  bool adds_bytes = false;
};

// Makes a model by which a kernel takes a launch plus the time of its FLOPs at the reached share of
// the peak, or of its bytes at the sheet's bandwidth. In float32, products and attention have one
// share at all sizes. The band goes from the peaks themselves to 1.5 times the time, for attention
// to 3 times, which is how far kernels of different years and libraries lie apart.
std::unique_ptr<TimeModel> make_time_model(const DevicePeaks& peaks,
                                           const ReachedShares& shares = {});

}  // namespace tracestep
