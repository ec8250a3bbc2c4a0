// Finds a time during which samples took longer: other work that came and went while a row was
// measured shows in neither half of the samples nor in their tail.
#pragma once

#include <cstddef>
#include <span>

namespace tracestep {

// Neighbouring samples that took longer than the others.
struct Excursion {
  std::size_t begin = 0, count = 0;  // the samples; count 0: there are too few to tell
  double ratio = 1;                  // their median over that of the others
  // How likely so clear a stretch is if the order of the samples says nothing; not below 0.001.
  double p = 1;
};

// The clearest stretch among those of 3, 4, 6, 8, 12, 16 … samples, up to half of them: the one
// whose sum of ranks lies highest in its own deviations. p by permutations of the samples, the same
// ones on every machine. Source: Naus, "The distribution of the size of the maximum cluster of
// points on a line", 1965 (scan statistics); Phipson and Smyth, "Permutation p-values should never
// be zero", 2010.
Excursion clearest_excursion(std::span<const double> samples);

}  // namespace tracestep
