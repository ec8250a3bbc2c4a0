#include "lab/measure/validity_parts.h"

#include <algorithm>

#include <fmt/format.h>

#include "lab/measure/statistics.h"

namespace tracestep {
namespace {

Severity of_shares(const ResultRow& row) {
  return row.samples_ms().empty() ? Severity::kDoubt : Severity::kNote;
}

}  // namespace

bool computes(const ResultRow& row) {
  return row.tflops().has_value();
}

std::optional<Verdict> instrument_cost(const ResultRow& row) {
  constexpr double kCost = 1.01;
  const auto recorded = row.instrumented_wall_ms(), wall = row.wall_ms();
  const std::vector<double> samples = row.samples_ms();
  if (!computes(row) || !recorded || !wall || *wall <= 0) return {};
  // Beyond what the timed steps vary by themselves.
  const double slow = samples.empty() ? *wall : quantile_of(samples, 0.95);
  if (*recorded < kCost * std::max(*wall, slow)) return {};
  const std::string by = row.text("recorded_by");
  return Verdict{
      "instrument_cost", Severity::kNote,
      fmt::format("recorded steps{} take {:.1f} % longer than timed ones: kernels' times "
                  "are of recorded steps, gaps of timed ones",
                  by.empty() ? "" : " (by " + by + ")", 100 * (*recorded / *wall - 1))};
}

std::optional<Verdict> recorded_apart(const ResultRow& row) {
  constexpr double kBusyOverWall = 1.05, kFarOverWall = 1.5, kWallBelowWall = 0.9;
  const auto wall = row.wall_ms(), busy = row.device_busy_ms();
  const auto recorded = row.instrumented_wall_ms();
  if (!computes(row) || !wall || *wall <= 0) return {};
  const std::vector<double> samples = row.samples_ms();
  const double longest = samples.empty() ? *wall : max_of(samples);
  const double shortest = samples.empty() ? *wall : min_of(samples);
  const bool is_longer = busy && *busy > kBusyOverWall * longest;
  const bool is_shorter = recorded && *recorded > 0 && *recorded < kWallBelowWall * shortest;
  if (!is_longer && !is_shorter) return {};
  // Times so far apart hint that timed steps lack a wait, which the row alone cannot tell.
  const bool is_open = is_longer && !recorded && *busy > kFarOverWall * longest;
  return Verdict{
      "recorded_apart", is_open ? Severity::kDoubt : of_shares(row),
      is_longer ? fmt::format("kernels of recorded steps work for {:.0f} % of an unrecorded step: "
                              "recording made them longer or the machine was not the same, and "
                              "shares are not of the timed steps",
                              100 * *busy / *wall)
                : fmt::format("recorded steps take {:.0f} % less than unrecorded ones: the "
                              "machine was not the same, and shares are not of the timed steps",
                              100 * (1 - *recorded / *wall))};
}

std::optional<Verdict> recorded_unsteady(const ResultRow& row) {
  constexpr std::size_t kFewest = 3;
  constexpr double kSpread = 1.25;
  const std::vector<double> busy = row.numbers("recorded_busy_ms");
  if (!computes(row) || busy.empty()) return {};
  const bool has_only_shares = row.samples_ms().empty();
  if (busy.size() < kFewest && has_only_shares) {
    return Verdict{"recorded_unsteady", of_shares(row),
                   fmt::format("{} recorded: shares by component want {} steps that agree",
                               busy.size() == 1 ? "one step was" : "two steps were", kFewest)};
  }
  const double least = min_of(busy), most = max_of(busy);
  if (most <= kSpread * least) return {};
  return Verdict{
      "recorded_unsteady", of_shares(row),
      fmt::format("kernels of the recorded steps work for {:.3f} to {:.3f} ms: busy time "
                  "and shares are of steps that do not agree",
                  least, most)};
}

std::optional<Verdict> uneven_instances(const ResultRow& row) {
  constexpr double kWorthSaying = 0.01, kMuch = 0.10;  // of the kernels' time
  const auto held_up = row.interrupted_ms(), busy = row.device_busy_ms();
  if (!computes(row) || !held_up || !busy || *held_up <= kWorthSaying * *busy) return {};
  return Verdict{
      "uneven_instances", *held_up > kMuch * *busy ? of_shares(row) : Severity::kNote,
      fmt::format("interruptions: {:.3g} ms of the recorded steps ({:.0f} % of the kernels' time) "
                  "were other programs'; kernels' times leave them out",
                  *held_up, 100 * *held_up / *busy)};
}

std::optional<Verdict> overlapping_kernels(const ResultRow& row) {
  constexpr double kWorthSaying = 1.01;
  const auto sum = row.number("kernels_ms"), busy = row.device_busy_ms();
  if (!computes(row) || !sum || !busy || *busy <= 0 || *sum <= kWorthSaying * *busy) return {};
  return Verdict{
      "overlapping_kernels", Severity::kNote,
      fmt::format("kernels run at the same time: their times add up to {:.3f} ms, {:.1f} "
                  "% of the {:.3f} ms in which any runs, so that shares of kernels' "
                  "times are not shares of the step",
                  *sum, 100 * *sum / *busy, *busy)};
}

double beyond_caches(double roof_percent, double launch_bytes) {
  constexpr double kLargestCache = 64.0 * 1024 * 1024;
  if (launch_bytes <= 2 * kLargestCache) return 0;
  return roof_percent * (1 - 2 * kLargestCache / launch_bytes);
}

std::optional<Verdict> above_the_roof(const ResultRow& row) {
  constexpr double kMargin = 105.0;
  const auto highest = row.number("highest_roof_percent");
  if (!highest || *highest <= kMargin) return {};
  const bool by_bytes = row.text("highest_roof_bound") == "bytes";
  const bool may_be_cached =
      by_bytes && beyond_caches(*highest, row.number("highest_roof_bytes").value_or(0)) <= kMargin;
  const bool is_noisy = had_company(row, kRoofCompany);
  const Severity severity = may_be_cached          ? Severity::kNote
                            : by_bytes || is_noisy ? Severity::kDoubt
                                                   : Severity::kInvalid;
  return Verdict{
      "above_the_roof", severity,
      fmt::format("{} is at {:.0f} % of its roof: {}", row.text("highest_roof_kernel"), *highest,
                  may_be_cached
                      ? "the ceiling, a copy's rate, is too low for it, or some of its bytes "
                        "were in a cache; this row does not tell which"
                  : is_noisy ? "other programs ran while the ceiling was measured, so it is too low"
                  : by_bytes ? "no cache holds so much of its bytes, so the ceiling was measured "
                               "too low; what bounds it is not known"
                             : "nothing computes faster than the device, so the ceiling was "
                               "measured too low, or the FLOPs are wrong")};
}

}  // namespace tracestep
