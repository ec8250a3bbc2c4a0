#include "lab/predict/rates.h"

#include <algorithm>
#include <cmath>

namespace tracestep {
namespace {

constexpr std::size_t kCount = std::size(kAll<Effort>);
constexpr int kReweightings = 4;
constexpr int kSweeps = 400;
constexpr double kFar = 0.05;  // relative error from which on a launch counts less

// The sum Σ weight (Σ_j rate_j x_j − 1)² as a matrix and a vector; x: amounts / time of a launch.
struct Normal {
  std::array<Efforts, kCount> a{};
  Efforts b{};

  void add(const Efforts& x, double target, double weight) {
    for (std::size_t i = 0; i < kCount; ++i) {
      b[i] += weight * x[i] * target;
      for (std::size_t j = 0; j < kCount; ++j) a[i][j] += weight * x[i] * x[j];
    }
  }
};

// Returns the rates >= 0 of the least sum: sets each in turn to its best until none changes.
Efforts least_squares(const Normal& n, Efforts rates) {
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    double change = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      if (n.a[i][i] <= 0) continue;
      double rest = n.b[i];
      for (std::size_t j = 0; j < kCount; ++j) rest -= j == i ? 0.0 : n.a[i][j] * rates[j];
      const double next = std::max(0.0, rest / n.a[i][i]);
      change = std::max(change, std::abs(next - rates[i]) * std::sqrt(n.a[i][i]));
      rates[i] = next;
    }
    if (change < 1e-7) break;
  }
  return rates;
}

Efforts relative(const MeasuredWork& launch) {
  Efforts out = launch.amounts;
  for (double& x : out) x /= launch.us;
  return out;
}

// Adds an equation for each quantity: a launch of this quantity alone takes the usual rate. So a
// quantity that hardly matters to the launches cannot get a rate from their noise. Where there is
// no usual rate, the rate is drawn to 0, by as much as the quantity matters.
void add_usual(const Rates& usual, std::span<const MeasuredWork> launches, double weight,
               Normal& n) {
  for (std::size_t i = 0; i < kCount; ++i) {
    Efforts only{};
    if (usual.us_per_unit[i] > 0) {
      only[i] = 1.0 / usual.us_per_unit[i];
      n.add(only, 1.0, weight);
      continue;
    }
    for (const MeasuredWork& m : launches) {
      only[i] += m.amounts[i] / m.us / static_cast<double>(launches.size());
    }
    n.add(only, 0.0, weight / kCount);
  }
}

}  // namespace

double Rates::us(const Efforts& amounts) const {
  double out = 0;
  for (std::size_t i = 0; i < kCount; ++i) out += amounts[i] * us_per_unit[i];
  return out;
}

Rates at_pace_of(std::span<const MeasuredWork> launches, Rates rates) {
  double taken = 0, given = 0;
  for (const MeasuredWork& m : launches) {
    taken += m.us;
    given += rates.us(m.amounts);
  }
  if (given <= 0) return rates;
  for (double& rate : rates.us_per_unit) rate *= taken / given;
  return rates;
}

Rates fit_rates(std::span<const MeasuredWork> launches, const Rates& usual, double prior) {
  Rates out = usual;
  if (launches.empty()) return out;
  std::vector<double> weights(launches.size(), 1.0);
  for (int round = 0; round < kReweightings; ++round) {
    Normal normal;
    for (std::size_t i = 0; i < launches.size(); ++i) {
      normal.add(relative(launches[i]), 1.0, weights[i]);
    }
    add_usual(usual, launches, prior, normal);
    out.us_per_unit = least_squares(normal, out.us_per_unit);
    for (std::size_t i = 0; i < launches.size(); ++i) {
      const double error = std::abs(out.us(launches[i].amounts) / launches[i].us - 1.0);
      weights[i] = std::min(1.0, kFar / std::max(error, 1e-12));
    }
  }
  return out;
}

}  // namespace tracestep
