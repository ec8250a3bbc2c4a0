// The frequency by which a pair of elements is rotated from one position to the next, for host and
// device code. Everything is double: float32 has no digits left for angles of many turns.
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

// Pairs of a head of which each may have a factor of its own.
inline constexpr int kMostRopeFactors = 256;

struct RopeFrequency {
  double theta, width;  // base, and elements that are rotated
  RopeScale scale;
  double factor, low, high, original;
  double factors[kMostRopeFactors];  // longrope: of each pair

  // The place among pairs at which one turns `turns` times within the original positions.
  TRACESTEP_ANYWHERE double pair_of(double turns) const {
    constexpr double kTurn = 6.283185307179586;
    return width * ::log(original / (turns * kTurn)) / (2 * ::log(theta));
  }

  // The share of a frequency that is kept; the rest is divided by the factor.
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

// The frequency of a rope_table with these attributes. Error{kUsage} for a scaling that nobody
// knows, and for factors that are not one for each pair.
RopeFrequency rope_frequency(const Attrs& attrs);

}  // namespace tracestep::ops
