#include "lab/measure/excursion.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "base/random.h"
#include "lab/measure/statistics.h"

namespace tracestep {
namespace {

// Returns each sample's rank minus the mean rank; equal samples get the mean of their ranks.
std::vector<double> centred_ranks(std::span<const double> samples) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  std::vector<double> out;
  for (double sample : samples) {
    const auto [first, last] = std::ranges::equal_range(sorted, sample);
    const auto below = static_cast<double>(first - sorted.begin()),
               above = static_cast<double>(sorted.end() - last);
    out.push_back((below - above) / 2);
  }
  return out;
}

struct Stretch {
  std::size_t begin = 0, count = 0;
  double score = 0;
};

Stretch clearest(const std::vector<double>& ranks) {
  const std::size_t n = ranks.size();
  std::vector<double> sums(n + 1, 0.0);
  std::partial_sum(ranks.begin(), ranks.end(), sums.begin() + 1);
  Stretch best;
  for (std::size_t count = 3; 2 * count <= n; count += count % 3 == 0 ? count / 3 : count / 2) {
    // The standard deviation of a sum of `count` ranks, up to a factor equal for all counts.
    const double deviation = std::sqrt(static_cast<double>(count * (n - count)));
    for (std::size_t begin = 0; begin + count <= n; ++begin) {
      const double score = (sums[begin + count] - sums[begin]) / deviation;
      if (score > best.score) best = {begin, count, score};
    }
  }
  return best;
}

// Returns the p-value of `score`: the share of random orders of `ranks` whose score is as high.
double share_as_clear(std::vector<double> ranks, double score) {
  constexpr int kOrders = 999, kEnough = 20;  // of those: then it is no rare thing
  const CounterRng rng(0, "excursion");
  std::uint64_t index = 0;
  int orders = 0, as_clear = 0;
  for (; orders < kOrders && as_clear < kEnough; ++orders) {
    for (std::size_t i = ranks.size(); i > 1; --i) {
      std::swap(ranks[i - 1], ranks[rng.below(index++, i)]);
    }
    as_clear += clearest(ranks).score >= score ? 1 : 0;
  }
  return (as_clear + 1.0) / (orders + 1.0);
}

}  // namespace

Excursion clearest_excursion(std::span<const double> samples) {
  const std::vector<double> ranks = centred_ranks(samples);
  const Stretch best = clearest(ranks);
  if (best.count == 0) return {};
  const auto within = samples.subspan(best.begin, best.count);
  std::vector<double> others(samples.begin(),
                             samples.begin() + static_cast<std::ptrdiff_t>(best.begin));
  const auto behind = samples.subspan(best.begin + best.count);
  others.insert(others.end(), behind.begin(), behind.end());
  return {best.begin, best.count, median_of(within) / median_of(others),
          share_as_clear(ranks, best.score)};
}

}  // namespace tracestep
