#include "lab/predict/between.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lab/measure/statistics.h"

namespace tracestep {
namespace {

using StepPointers = std::vector<const CalibratedStep*>;

// An equation y ≈ first · x + second · z for fitted(), whose errors count relative to `scale`.
struct Sample {
  double x, z, y, scale;
};
struct TwoTerms {
  double first = 0, second = 0;
};

// Fits two terms by least squares; samples farther off than `far` count less (Huber's weights). If
// x and z of the samples are in proportion, only z has a term.
TwoTerms fitted(std::span<const Sample> samples, double far) {
  constexpr int kReweightings = 8;
  constexpr double kFlat = 1e-9;
  TwoTerms out;
  std::vector<double> weights(samples.size(), 1.0);
  for (int round = 0; round < kReweightings; ++round) {
    double xx = 0, xz = 0, zz = 0, xy = 0, zy = 0;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const Sample& s = samples[i];
      const double w = weights[i] / (s.scale * s.scale);
      xx += w * s.x * s.x;
      xz += w * s.x * s.z;
      zz += w * s.z * s.z;
      xy += w * s.x * s.y;
      zy += w * s.z * s.y;
    }
    const double det = xx * zz - xz * xz;
    const bool is_flat = det <= kFlat * xx * zz;
    out.first = is_flat ? 0.0 : std::max(0.0, (xy * zz - zy * xz) / det);
    out.second = zz > 0 ? (zy - out.first * xz) / zz : 0.0;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const Sample& s = samples[i];
      const double error = std::abs(out.first * s.x + out.second * s.z - s.y) / s.scale;
      weights[i] = std::min(1.0, far / std::max(error, 1e-12));
    }
  }
  return out;
}

double product_count(const CalibratedStep& step) {
  std::int64_t out = 0;
  for (const CalibratedStep::Launch& launch : step.kernels) {
    if (launch.kernel_class == KernelClass::kGemm) out += launch.count;
  }
  return static_cast<double>(out);
}

double launches_of(const CalibratedStep& step) {
  return static_cast<double>(std::max<std::int64_t>(1, step.launches));
}

// Returns the half of the steps with the shortest launches or, if `longest`, with the longest.
StepPointers half_of(StepPointers steps, bool longest) {
  std::ranges::sort(steps, {}, [&](const CalibratedStep* step) {
    return (longest ? -1.0 : 1.0) * step->wall_ms / launches_of(*step);
  });
  steps.resize((steps.size() + 1) / 2);
  return steps;
}

// Finds gap and slowdown of a device whose kernels run inside the host's calls, so that the gaps
// are the wall time less the kernels'. They come from the half of the executor's steps with the
// shortest kernels, as noise hides them in others. The other half, of all executors, tells how much
// longer whole steps take: kernels count in their quietest round, and no round is quiet for all.
Between between_calls(const StepPointers& steps, const StepPointers& all) {
  Between out;
  std::vector<double> gaps, shares;
  for (const CalibratedStep* step : half_of(steps, false))
    gaps.push_back(std::max(0.0, (step->wall_ms - step->busy_ms) * 1e3 / launches_of(*step)));
  out.gap_us = median_of(gaps);
  for (const CalibratedStep* step : half_of(all, true)) {
    const double gaps_ms = out.gap_us * launches_of(*step) * 1e-3;
    if (step->busy_ms > 0) shares.push_back((step->wall_ms - gaps_ms) / step->busy_ms - 1.0);
  }
  out.slowdown = std::max(0.0, median_of(shares));
  return out;
}

// Fits gap and slowdown of an asynchronous device to steps that keep it busy while the host is far
// ahead. Gaps may be below zero: kernels timed alone have a beginning and an end that overlap with
// others in a step. Kernels without pauses draw more power, so clocks are a little lower.
void add_gaps(const StepPointers& steps, Between& out) {
  constexpr double kAhead = 0.75, kFar = 0.005;
  std::vector<Sample> samples;
  for (const CalibratedStep* step : steps) {
    if (step->issue_ms > kAhead * step->wall_ms) continue;
    samples.push_back({.x = step->busy_ms * 1e3,
                       .z = static_cast<double>(step->launches),
                       .y = (step->wall_ms - step->busy_ms) * 1e3,
                       .scale = step->wall_ms * 1e3});
  }
  const TwoTerms found = fitted(samples, kFar);
  out.slowdown = found.first;
  out.gap_us = found.second;
}

// Fits the host's time of a launch, and how far it varies between processes and within one.
void add_host(const StepPointers& steps, Between& out) {
  constexpr double kFar = 0.05;
  std::vector<Sample> samples;
  for (const CalibratedStep* step : steps) {
    const double products = product_count(*step);
    samples.push_back({.x = products,
                       .z = static_cast<double>(step->launches) - products,
                       .y = step->issue_ms * 1e3,
                       .scale = std::max(1e-3, step->issue_ms * 1e3)});
  }
  const TwoTerms found = fitted(samples, kFar);
  out.product_issue_us = found.first;
  out.other_issue_us = std::max(0.0, found.second);
  std::vector<double> errors;
  for (const CalibratedStep* step : steps) {
    const double us = out.issue_us(*step);
    if (us > 0 && step->issue_ms > 0)
      errors.push_back(std::abs(std::log(step->issue_ms * 1e3 / us)));
  }
  if (!errors.empty()) out.host_spread = std::expm1(quantile_of(errors, 0.9));
}

}  // namespace

double Between::issue_us(const CalibratedStep& step) const {
  const double products = product_count(step);
  return products * product_issue_us +
         (static_cast<double>(step.launches) - products) * other_issue_us;
}

Between between_kernels(std::span<const CalibratedStep* const> steps, ExecutorKind executor,
                        bool is_asynchronous) {
  StepPointers its;
  for (const CalibratedStep* step : steps) {
    if (step->executor == executor) its.push_back(step);
  }
  if (its.empty()) return {};
  if (!is_asynchronous) return between_calls(its, {steps.begin(), steps.end()});
  Between out;
  add_gaps(its, out);
  // The device takes the launches of a graph from its own queue, without the host.
  if (executor != ExecutorKind::kCompiled) add_host(its, out);
  return out;
}

void LaunchQueue::add(double issue_us, double kernel_us) {
  issued_us_ += issue_us;
  ended_us_ = std::max(ended_us_, issued_us_) + std::max(0.0, kernel_us);
}

}  // namespace tracestep
