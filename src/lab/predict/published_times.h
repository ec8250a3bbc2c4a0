// The time of a step on a device that need not be here, from its maker's peaks and the shares of
// them that devices of its generation reach. Nothing is measured.
#pragma once

#include <memory>

#include "lab/predict/time_model.h"

namespace tracestep {

// The shares of a data sheet's peaks that kernels reach, by the generation of a device: rows of
// data/generations.csv, which also says what each was fitted to. These are for a device of which
// nothing is known.
struct ReachedShares {
  double products = 0.68;   // of 16-bit products' peak
  double attention = 0.32;  // of the same peak, by kernels that work tile by tile, in long contexts
  double half_context =
      0;  // tokens at which attention reaches half of that; 0: it reaches it anywhere
  // A product takes the time to compute and that to move its bytes; else the longer of the two.
  bool adds_bytes = false;
};

// A kernel takes a launch and its time at the reached share of the peak, or that of its bytes at
// the sheet's bandwidth (in float32 products and attention have one share everywhere). The band
// goes from the peaks themselves to half as long again, for attention to three times as long: the
// kernels of different years and libraries lie as far apart.
std::unique_ptr<TimeModel> make_time_model(const DevicePeaks& peaks,
                                           const ReachedShares& shares = {});

}  // namespace tracestep
