#include "cli/device_ceilings.h"

#include <algorithm>

#include "backends/cpu/ceilings.h"
#include "cli/cuda.h"
#include "session/devices.h"

namespace tracestep::cli {
namespace {

constexpr std::int64_t kArrayBytes = std::int64_t{128} << 20;

Ceilings cpu_ceilings(const RunSpec& run) {
  RunSpec unlimited = run;
  unlimited.place.memory_limit_bytes = 0;
  const auto device = make_device(unlimited);
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
  return out;
}

}  // namespace

Ceilings device_ceilings(const RunSpec& run) {
  if (cuda_index(run.place.device)) return cuda_ceilings(run);
  return run.place.device == "cpu" ? cpu_ceilings(run) : Ceilings{};
}

}  // namespace tracestep::cli
