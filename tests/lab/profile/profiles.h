// Profiles with times that a test can work out by hand.
#pragma once

#include "lab/profile/run.h"

namespace tracestep::testing {

// The specification of a profile of a tiny model, for runs.
ProfileSpec tiny_profile(Mode mode, Granularity ops = Granularity::kFused);

// A profile of two nodes of one layer, a product of [4,8] with a weight [16,8] (component ffn.w1,
// forward) and the sum of its result with itself (ffn.residual, forward), in two steps. In each, in
// ns: the product from 1000 to 5000, the sum from 6000 to 7000; the call from 0 to 10000 and issued
// at 2000. The second step is 20000 later.
Profile two_kernel_profile();

// Returns that profile as a device's profiler would tell it: the product is two kernels, of 3000
// and 1000 ns, asked for by calls of the driver.
Profile traced_profile();

}  // namespace tracestep::testing
