// Gives the validity checker a profile's figures under the names that it reads, and collects its
// verdicts.
#include <algorithm>
#include <tuple>

#include "analysis/cost.h"
#include "lab/measure/statistics.h"
#include "lab/measure/validity_parts.h"
#include "lab/profile/lanes.h"
#include "lab/profile/tables.h"
#include "lab/report/columns.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

// For each recorded step, the time in which kernels run and the sum of matrix products' times.
struct StepTimesOfKernels {
  std::vector<double> busy_ms, products_ms;
};

StepTimesOfKernels kernel_times(const Profile& p) {
  StepTimesOfKernels out;
  out.busy_ms = busy_ms_by_step(p);
  out.products_ms.resize(p.steps.size());
  for (const ProfiledLaunch& l : p.launches) {
    const double ms = static_cast<double>(l.duration_ns()) * 1e-6;
    const auto step = static_cast<std::size_t>(l.step);
    if (l.node >= 0 && is_product(p.program.node(l.node))) out.products_ms[step] += ms;
  }
  return out;
}

// Sets in `row` the kernel that reaches most of its roof. A kernel counts from 1 % of the step's
// time on, or from 0.1 % if caches explain its speed. Of those above their roof, kernels bound by
// FLOPs come first, then those that caches do not explain.
void set_highest_roof(const ProfiledCell& cell, Json& row) {
  constexpr double kShare = 0.01, kSmallShare = 0.001;
  std::tuple<bool, bool, double> highest{};
  for (const Work& w : cell.work.rows) {
    if (w.sums.roof_ms <= 0 || w.sums.ms < kSmallShare * cell.work.busy_ms) continue;
    const double percent = percent_of(w.sums.roof_ms, w.sums.ms);
    const double launch_bytes = w.sums.bytes / std::max(w.sums.launches, 1.0);
    const bool is_explained =
        w.sums.bound() == "bytes" && beyond_caches(percent, launch_bytes) <= 100.0;
    if (w.sums.ms < kShare * cell.work.busy_ms && !is_explained) continue;
    const bool is_above = percent > 100.0;
    const std::tuple rank{is_above && w.sums.bound() == "FLOPs",
                          is_above && beyond_caches(percent, launch_bytes) > 100.0, percent};
    if (rank <= highest) continue;
    highest = rank;
    row["highest_roof_percent"] = percent;
    row["highest_roof_kernel"] = fmt::format("{} of {}, {}", w.op, w.component, w.phase);
    row["highest_roof_bound"] = w.sums.bound();
    row["highest_roof_bytes"] = launch_bytes;
  }
}

double mean_wall_ms(const Profile& p) {
  std::vector<double> wall;
  for (const ProfiledStep& step : p.steps) wall.push_back(step.wall_ms());
  return mean_of(wall);
}

// Returns the FLOPs of all ranks, since the row's label means all of them.
std::int64_t flops_of(const Profile& p) {
  return gemm_flops(p.program) * p.spec.step.parallel.ranks;
}

// Makes a row of `bench` from the cell, without samples: its shares are what is judged.
Json row_of(const ProfiledCell& cell, const StepTimesOfKernels& times) {
  const Profile& p = cell.profile;
  Json row = key_of(p.spec.step);
  row["device"] = p.device;
  row["status"] = name_of(p.status);
  if (p.status != Status::kOk || p.steps.empty()) return row;
  row["wall_ms"] = p.plain.wall_ms;
  row["device_span_ms"] = p.plain.span_ms;
  row["device_busy_ms"] = cell.work.busy_ms;
  row["instrumented_wall_ms"] = mean_wall_ms(p);
  row["kernels_ms"] = cell.work.kernels_ms;
  row["recorded_busy_ms"] = list_of(times.busy_ms);
  row["interrupted_ms"] = cell.work.interrupted_ms;
  row["recorded_by"] = p.source;
  row["launches"] = static_cast<double>(p.launches.size()) / static_cast<double>(p.steps.size());
  row["flops"] = flops_of(p);
  if (p.plain.wall_ms > 0) {
    row["tflops"] = static_cast<double>(flops_of(p)) / p.plain.wall_ms * 1e-9;
  }
  double roof_gflops = 0;
  for (const auto& [dtype, gflops] : cell.ceilings.products_gflops) {
    roof_gflops = std::max(roof_gflops, gflops);
  }
  if (roof_gflops > 0) row["roof_tflops"] = roof_gflops * p.spec.step.parallel.ranks * 1e-3;
  if (cell.ceilings.others_cores) row[kRoofCompany] = *cell.ceilings.others_cores;
  set_highest_roof(cell, row);
  return row;
}

// Returns the row with the kernels' time of each step as samples, so that cells can be compared.
ResultRow with_samples(Json row, const std::vector<double>& ms) {
  if (ms.empty() || median_of(ms) <= 0) return ResultRow(std::move(row));
  row["samples_ms"] = list_of(ms);
  row["median_ms"] = median_of(ms);
  return ResultRow(std::move(row));
}

}  // namespace

std::vector<std::vector<Verdict>> judge_profiles(std::span<const ProfiledCell> cells) {
  std::vector<std::vector<Verdict>> out;
  std::vector<ResultRow> all, products;
  for (const ProfiledCell& cell : cells) {
    const StepTimesOfKernels times = kernel_times(cell.profile);
    const Json row = row_of(cell, times);
    out.push_back(judge(ResultRow(row)));
    all.push_back(with_samples(row, times.busy_ms));
    products.push_back(with_samples(row, times.products_ms));
  }
  for (const std::vector<ResultRow>& rows : {all, products}) {
    for (RowVerdict& found : judge_together(rows)) {
      std::vector<Verdict>& verdicts = out[found.row];
      const bool is_known = std::ranges::count(verdicts, found.verdict.code, &Verdict::code) > 0;
      if (!is_known) verdicts.push_back(std::move(found.verdict));
    }
  }
  return out;
}

}  // namespace tracestep
