// Finds a time during which samples took longer: other work that came and went while a row was
// measured shows in neither half of the samples nor in their tail.
#pragma once

#include <cstddef>
#include <span>

namespace tracestep {

// Consecutive samples that took longer than the others.
struct Excursion {
  // The first sample and the number of samples; count 0: there are too few samples to tell.
  std::size_t begin = 0, count = 0;
  double ratio = 1;  // The median of these samples over that of the others.
  // The probability of such a stretch by chance, if the samples came in random order; at least
  // 0.001.
  double p = 1;
};

// Returns, of all stretches of 3, 4, 6, 8, 12, 16 … samples, up to half of the samples, the one
// whose sum of ranks is most standard deviations above its mean. p comes from random permutations,
// which are the same on every machine. Source: Naus, "The distribution of the size of the maximum
// cluster of points on a line", 1965 (scan statistics); Phipson and Smyth, "Permutation p-values
// should never be zero", 2010.
Excursion clearest_excursion(std::span<const double> samples);

}  // namespace tracestep
