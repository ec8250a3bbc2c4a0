// The frequency by which a pair of elements is rotated from one position to the next, for host and
// device code. It is computed in double, because float32 has too few digits for angles of many
// turns.
#pragma once

#include <cmath>

#include "ir/attrs.h"

#ifdef __CUDACC__
#define TRACESTEP_ANYWHERE __host__ __device__
#else
#define TRACESTEP_ANYWHERE
#endif

namespace tracestep::ops {

enum class RopeScale { kNone, kLinear, kLlama3, kYarn, kLongRope };

// The most pairs of a head that can have factors of their own.
inline constexpr int kMostRopeFactors = 256;

struct RopeFrequency {
  double theta, width;  // The base, and the number of rotated elements.
  RopeScale scale;
  double factor, low, high, original;
  double factors[kMostRopeFactors];  // longrope: the factor of each pair.

  // Returns the index of the pair (not a whole number) that turns `turns` times within the original
  // positions.
  TRACESTEP_ANYWHERE double pair_of(double turns) const {
    constexpr double kTurn = 6.283185307179586;
    return width * ::log(original / (turns * kTurn)) / (2 * ::log(theta));
  }

  // Returns the share of a frequency that stays as it is; the rest is divided by the factor.
  TRACESTEP_ANYWHERE double kept(double pair, double frequency) const {
    if (scale == RopeScale::kNone) return 1;
    if (scale == RopeScale::kLinear) return 0;
    double share;
    if (scale == RopeScale::kLlama3) {
      constexpr double kTurn = 6.283185307179586;
      share = (original * frequency / kTurn - low) / (high - low);
    } else {
      const double first = ::fmax(::floor(pair_of(high)), 0.0);
      double last = ::fmin(::ceil(pair_of(low)), width - 1);
      if (first == last) last += 0.001;
      share = 1 - (pair - first) / (last - first);
    }
    return ::fmin(::fmax(share, 0.0), 1.0);
  }

  TRACESTEP_ANYWHERE double of(double pair) const {
    const double frequency = ::pow(theta, -2.0 * pair / width);
    if (scale == RopeScale::kLongRope) return frequency / factors[static_cast<int>(pair)];
    const double share = kept(pair, frequency);
    return frequency * share + frequency / factor * (1 - share);
  }
};

// Returns the frequency for a rope_table with these attributes. Throws Error{kUsage} for an unknown
// scaling, and unless there is one factor for each pair.
RopeFrequency rope_frequency(const Attrs& attrs);

}  // namespace tracestep::ops
