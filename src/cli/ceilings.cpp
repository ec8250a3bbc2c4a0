#include "cli/ceilings.h"

#include <algorithm>
#include <map>
#include <memory>

#include "backends/cpu/ceilings.h"
#include "cli/cuda.h"
#include "lab/measure/host_facts.h"
#include "session/devices.h"

namespace tracestep::cli {
namespace {

// The run's memory limit does not apply to the arrays that its device is measured with.
std::unique_ptr<Device> unlimited_device(RunSpec run) {
  run.place.memory_limit_bytes = 0;
  return make_device(run);
}

// --- for rooflines ------------------------------------------------------------------------------
constexpr std::int64_t kArrayBytes = std::int64_t{128} << 20;

Ceilings cpu_ceilings(const RunSpec& run) {
  const auto device = unlimited_device(run);
  const HostFacts before = read_host_facts();
  Ceilings out;
  for (int i = 0; i < 3; ++i) {
    out.arithmetic_gflops = std::max(out.arithmetic_gflops, measure_fma_gflops(*device));
  }
  const BandwidthCeiling b = measure_bandwidth(*device, kArrayBytes, 3);
  out.bandwidth_gb_s = std::max({b.copy_gb_s, b.copy_streaming_gb_s, b.triad_gb_s, b.update_gb_s});
  // Every dtype is multiplied in float32.
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    out.products_gflops[dtype] = out.arithmetic_gflops;
  }
  out.how = fmt::format(
      "float32 multiply-adds on {} threads; the fastest of copy, triad and update over arrays of "
      "128 MiB",
      run.place.threads);
  out.others_cores = others_cores(before, read_host_facts());
  return out;
}

// --- for rows of `bench` ------------------------------------------------------------------------
double measured_tflops(const RunSpec& run) {
  if (cuda_index(run.place.device)) return cuda_roof_tflops(run);
  if (run.place.device != "cpu") return 0.0;
  // The CPU computes every precision in float32. The roof is the best of several runs.
  constexpr int kRuns = 5;
  const auto device = unlimited_device(run);
  double best = 0.0;
  for (int i = 0; i < kRuns; ++i) best = std::max(best, measure_fma_gflops(*device) * 1e-3);
  return best * run.parallel.ranks;  // each has threads of its own
}

// --- for `doctor` -------------------------------------------------------------------------------
Column rate(std::string name, std::string title, std::string unit, std::string description = "") {
  return {.name = std::move(name),
          .title = std::move(title),
          .unit = std::move(unit),
          .kind = ColumnKind::kReal,
          .digits = 1,
          .description = std::move(description)};
}

Table arithmetic(const CpuCeilings& c) {
  Table table{.name = "arithmetic",
              .title = "Peak arithmetic",
              .columns = {{.name = "simd", .title = "SIMD"},
                          {.name = "threads", .kind = ColumnKind::kInt},
                          rate("fma_gflops", "float32 multiply-add", "GFLOP/s"),
                          rate("products_f32_percent", "matrix products, float32", "% of peak"),
                          rate("products_bf16_percent", "bfloat16 storage", "% of peak")}};
  table.add_row({c.simd, c.threads, c.fma_gflops, 100.0 * c.weighted_share(DType::kF32),
                 100.0 * c.weighted_share(DType::kBF16)});
  return table;
}

Table bandwidth(const CpuCeilings& c) {
  Table table{.name = "bandwidth",
              .title = "Memory bandwidth",
              .columns = {{.name = "array_bytes", .title = "array", .kind = ColumnKind::kBytes},
                          rate("copy_gb_s", "copy", "GB/s", "y = x"),
                          rate("copy_streaming_gb_s", "streaming copy", "GB/s",
                               "stores that bypass the caches"),
                          rate("triad_gb_s", "triad", "GB/s", "y = a + s b"),
                          rate("update_gb_s", "update", "GB/s",
                               "four arrays read, three written in place, as AdamW does")}};
  for (const BandwidthCeiling& b : c.bandwidths) {
    table.add_row({b.array_bytes, b.copy_gb_s, b.copy_streaming_gb_s, b.triad_gb_s, b.update_gb_s});
  }
  return table;
}

Table products(const CpuCeilings& c) {
  Table table{.name = "products",
              .title = "Matrix products of training",
              .columns = {{.name = "product"},
                          {.name = "dtype"},
                          {.name = "m", .kind = ColumnKind::kInt},
                          {.name = "n", .kind = ColumnKind::kInt},
                          {.name = "k", .kind = ColumnKind::kInt},
                          rate("gflops", "speed", "GFLOP/s"),
                          rate("peak_gflops", "peak", "GFLOP/s", "measured beside it"),
                          rate("share_percent", "share", "%")}};
  for (const ProductCeiling& p : c.products) {
    table.add_row(
        {p.name, name_of(p.dtype), p.m, p.n, p.k, p.gflops, p.peak_gflops, 100.0 * p.share()});
  }
  return table;
}

}  // namespace

Ceilings device_ceilings(const RunSpec& run) {
  if (cuda_index(run.place.device)) return cuda_ceilings(run);
  return run.place.device == "cpu" ? cpu_ceilings(run) : Ceilings{};
}

std::vector<Table> ceiling_tables(const RunSpec& run) {
  if (cuda_index(run.place.device)) return cuda_ceiling_tables(run);
  const auto device = make_device(run);
  const CpuCeilings measured = measure_cpu_ceilings(*device);
  return {arithmetic(measured), bandwidth(measured), products(measured)};
}

namespace {

struct KnownRoof {
  double tflops = 0;
  std::optional<double> others_cores = {};
};

KnownRoof& known_roof(const RunSpec& run) {
  static std::map<std::string, KnownRoof> all;
  const std::string key = fmt::format("{} {} {} {}", run.place.device, run.place.threads,
                                      run.parallel.ranks, name_of(run.precision));
  const auto [found, is_new] = all.try_emplace(key);
  if (is_new) found->second.tflops = measured_tflops(run);
  return found->second;
}

}  // namespace

double roof_tflops(const RunSpec& run) {
  return known_roof(run).tflops;
}

double roof_tflops_for(const RunSpec& run, double reached) {
  constexpr double kMostSeconds = 2;
  double best = roof_tflops(run);
  if (best <= 0.0 || best >= reached) return best;
  KnownRoof& known = known_roof(run);
  const HostFacts before = read_host_facts();
  for (HostFacts now = before; best < reached && now.at_s - before.at_s < kMostSeconds;) {
    best = std::max(best, measured_tflops(run));
    now = read_host_facts();
    if (!cuda_index(run.place.device)) known.others_cores = tracestep::others_cores(before, now);
  }
  return known.tflops = best;
}

std::optional<double> roof_others_cores(const RunSpec& run) {
  return known_roof(run).others_cores;
}

}  // namespace tracestep::cli
