#include "lab/measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <ranges>
#include <vector>

namespace tracestep {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// The largest sizes for exact probabilities; beyond, the normal approximation has no visible error.
constexpr std::size_t kExactBinomial = 1000;
constexpr std::size_t kExactPairs = 400;
constexpr std::size_t kExactDifferences = 200;

std::vector<double> sorted(std::span<const double> samples) {
  std::vector<double> out(samples.begin(), samples.end());
  std::sort(out.begin(), out.end());
  return out;
}

// A quantile's position: after order statistic `below`, by `share` of the distance to the next one.
struct Position {
  std::size_t below;
  double share;
};

Position place_of(double p, std::size_t count) {
  const double position = p * static_cast<double>(count - 1);
  const auto below = static_cast<std::size_t>(position);
  return {below, position - static_cast<double>(below)};
}

double between(double below, double above, double share) {
  return below + share * (above - below);
}

double quantile_of_sorted(const std::vector<double>& s, double p) {
  if (s.empty()) return kNan;
  const Position place = place_of(p, s.size());
  return between(s[place.below], s[std::min(place.below + 1, s.size() - 1)], place.share);
}

double squared_deviations(std::span<const double> samples) {
  const double mean = mean_of(samples);
  double sum = 0;
  for (double x : samples) sum += (x - mean) * (x - mean);
  return sum;
}

double normal_tail(double z) {
  return 0.5 * std::erfc(z / std::sqrt(2.0));
}

// Returns the probability P(B <= k) for B ~ Binomial(n, 1/2).
double half_binomial_cdf(std::size_t k, std::size_t n) {
  if (n > kExactBinomial) {
    const double count = static_cast<double>(n);
    return normal_tail((count / 2 - static_cast<double>(k) - 0.5) / (std::sqrt(count) / 2));
  }
  double term = std::pow(0.5, static_cast<double>(n)), sum = term;
  for (std::size_t i = 1; i <= k; ++i) {
    term *= static_cast<double>(n - i + 1) / static_cast<double>(i);
    sum += term;
  }
  return sum;
}

// Returns the probability that U <= u when all orders are equally likely: counts, per value of U,
// the ways to place the first list, adding one element of the second list at a time.
double exact_u_cdf(std::size_t n, std::size_t m, std::size_t u) {
  // ways[i][v]: orders of i elements of a among the elements of b seen so far with U = v.
  std::vector<std::vector<double>> ways(n + 1, std::vector<double>(n * m + 1, 0.0));
  for (std::size_t i = 0; i <= n; ++i) ways[i][0] = 1;
  for (std::size_t j = 1; j <= m; ++j) {
    // An element of a placed after j elements of b adds j pairs.
    for (std::size_t i = 1; i <= n; ++i) {
      for (std::size_t v = i * j; v >= j; --v) ways[i][v] += ways[i - 1][v - j];
    }
  }
  double below = 0, all = 0;
  for (std::size_t v = 0; v <= n * m; ++v) {
    all += ways[n][v];
    if (v <= u) below += ways[n][v];
  }
  return below / all;
}

struct RankSum {
  double ranks_of_a = 0;
  double tie_term = 0;  // sum of t^3 - t over groups of t equal samples
};

RankSum rank_sum(std::span<const double> a, std::span<const double> b) {
  const std::vector<double> sa = sorted(a), sb = sorted(b);
  RankSum out;
  auto i = sa.begin(), j = sb.begin();
  double before = 0;
  while (i != sa.end() || j != sb.end()) {
    const double value = i == sa.end() ? *j : j == sb.end() ? *i : std::min(*i, *j);
    double of_a = 0, of_b = 0;
    for (; i != sa.end() && *i == value; ++i) ++of_a;
    for (; j != sb.end() && *j == value; ++j) ++of_b;
    const double ties = of_a + of_b;
    out.tie_term += ties * ties * ties - ties;
    out.ranks_of_a += of_a * (before + (ties + 1) / 2);
    before += ties;
  }
  return out;
}

// The ranks by size of the nonzero differences; doubled, so that mean ranks of ties are whole.
struct SignedRanks {
  std::vector<std::size_t> doubled;
  std::size_t below = 0, above = 0;  // sums over the negative and the positive ones
};

SignedRanks signed_ranks(std::span<const double> differences) {
  std::vector<double> d(differences.begin(), differences.end());
  std::erase(d, 0.0);
  std::ranges::sort(d, {}, [](double x) { return std::abs(x); });
  SignedRanks out;
  for (std::size_t begin = 0, end = 0; begin < d.size(); begin = end) {
    while (end < d.size() && std::abs(d[end]) == std::abs(d[begin])) ++end;
    for (std::size_t i = begin; i < end; ++i) {
      out.doubled.push_back(begin + 1 + end);
      (d[i] < 0 ? out.below : out.above) += out.doubled.back();
    }
  }
  return out;
}

// Returns the probability that the doubled ranks of one sign add up to `sum` or less when every
// sign is the toss of a coin.
double signed_rank_cdf(const SignedRanks& ranks, std::size_t sum) {
  std::vector<double> chance(ranks.below + ranks.above + 1, 0.0);  // by the sum
  chance[0] = 1;
  for (std::size_t rank : ranks.doubled) {
    for (std::size_t v = chance.size(); v-- > 0;) {
      chance[v] = 0.5 * (chance[v] + (v >= rank ? chance[v - rank] : 0.0));
    }
  }
  return std::accumulate(chance.begin(), chance.begin() + static_cast<std::ptrdiff_t>(sum) + 1,
                         0.0);
}

}  // namespace

double mean_of(std::span<const double> samples) {
  if (samples.empty()) return kNan;
  double sum = 0;
  for (double x : samples) sum += x;
  return sum / static_cast<double>(samples.size());
}

double sample_std_of(std::span<const double> samples) {
  if (samples.size() < 2) return kNan;
  return std::sqrt(squared_deviations(samples) / static_cast<double>(samples.size() - 1));
}

double population_std_of(std::span<const double> samples) {
  if (samples.empty()) return kNan;
  return std::sqrt(squared_deviations(samples) / static_cast<double>(samples.size()));
}

double median_of(std::span<const double> samples) {
  return quantile_of(samples, 0.5);
}

double min_of(std::span<const double> samples) {
  return samples.empty() ? kNan : *std::min_element(samples.begin(), samples.end());
}

double max_of(std::span<const double> samples) {
  return samples.empty() ? kNan : *std::max_element(samples.begin(), samples.end());
}

double quantile_of(std::span<const double> samples, double p) {
  if (samples.empty()) return kNan;
  // Two order statistics need no sorted list, which matters with a million samples.
  std::vector<double> s(samples.begin(), samples.end());
  const Position place = place_of(p, s.size());
  const auto below = s.begin() + static_cast<std::ptrdiff_t>(place.below);
  std::nth_element(s.begin(), below, s.end());
  if (below + 1 == s.end()) return *below;
  return between(*below, *std::min_element(below + 1, s.end()), place.share);
}

Summary summarize(std::span<const double> samples) {
  const std::vector<double> s = sorted(samples);
  return {.count = static_cast<std::int64_t>(s.size()),
          .mean = mean_of(samples),
          .sample_std = sample_std_of(samples),
          .median = quantile_of_sorted(s, 0.5),
          .min = min_of(samples),
          .max = max_of(samples),
          .p95 = quantile_of_sorted(s, 0.95)};
}

Interval median_interval(std::span<const double> samples, double confidence) {
  const std::vector<double> s = sorted(samples);
  if (s.empty()) return {kNan, kNan, 0};
  // s[k] and its mirror image leave out the cases with at most k samples on one side.
  const auto coverage = [&](std::size_t k) { return 1 - 2 * half_binomial_cdf(k, s.size()); };
  // The last k that still covers enough; wider pairs cover more.
  const auto candidates = std::views::iota(std::size_t{1}, std::max(s.size() / 2, std::size_t{1}));
  const auto first_bad = std::ranges::partition_point(
      candidates, [&](std::size_t candidate) { return coverage(candidate) >= confidence; });
  const auto k = static_cast<std::size_t>(first_bad - candidates.begin());
  return {s[k], s[s.size() - 1 - k], std::max(0.0, coverage(k))};
}

double mann_whitney_p(std::span<const double> a, std::span<const double> b) {
  if (a.empty() || b.empty()) return 1;
  const double n = static_cast<double>(a.size()), m = static_cast<double>(b.size());
  const RankSum ranks = rank_sum(a, b);
  const double u_of_a = ranks.ranks_of_a - n * (n + 1) / 2;
  const double u = std::min(u_of_a, n * m - u_of_a);
  if (ranks.tie_term == 0 && a.size() * b.size() <= kExactPairs) {
    return std::min(1.0, 2 * exact_u_cdf(a.size(), b.size(), static_cast<std::size_t>(u)));
  }
  const double count = n + m;
  const double variance = n * m / 12 * (count + 1 - ranks.tie_term / (count * (count - 1)));
  if (variance <= 0) return 1;  // all samples are equal
  const double z = (n * m / 2 - u - 0.5) / std::sqrt(variance);
  return std::min(1.0, 2 * normal_tail(z));
}

double wilcoxon_p(std::span<const double> differences) {
  const SignedRanks ranks = signed_ranks(differences);
  if (ranks.doubled.empty()) return 1;
  const std::size_t least = std::min(ranks.below, ranks.above);
  if (ranks.doubled.size() <= kExactDifferences) {
    return std::min(1.0, 2 * signed_rank_cdf(ranks, least));
  }
  double squares = 0;
  for (std::size_t rank : ranks.doubled) squares += static_cast<double>(rank * rank);
  // Mean and deviation of the sum; half a rank of continuity is one of doubled ranks.
  const double mean = static_cast<double>(ranks.below + ranks.above) / 2;
  const double z = (mean - static_cast<double>(least) - 1) / (std::sqrt(squares) / 2);
  return std::min(1.0, 2 * normal_tail(z));
}

}  // namespace tracestep
