#include "cli/roof.h"

#include <algorithm>

#include "backends/cpu/ceilings.h"
#include "cli/cuda.h"
#include "session/devices.h"

namespace tracestep::cli {
namespace {

double measure(const RunSpec& run) {
  if (cuda_index(run.place.device)) return cuda_roof_tflops(run);
  if (run.place.device != "cpu") return 0.0;
  // The CPU computes every precision in float32. The roof is the best of several runs.
  constexpr int kRuns = 5;
  RunSpec unlimited = run;
  unlimited.place.memory_limit_bytes = 0;
  const auto device = make_device(unlimited);
  double best = 0.0;
  for (int i = 0; i < kRuns; ++i) best = std::max(best, measure_fma_gflops(*device) * 1e-3);
  return best;
}

}  // namespace

double Roof::tflops(const RunSpec& run) {
  const std::string precision = name_of(run.precision);
  const auto found = known_.find(precision);
  return found != known_.end() ? found->second : known_[precision] = measure(run);
}

double Roof::tflops_for(const RunSpec& run, double reached) {
  constexpr int kTries = 10;
  double best = tflops(run);
  for (int i = 0; i < kTries && best > 0.0 && best < reached; ++i) {
    best = std::max(best, measure(run));
  }
  return known_[name_of(run.precision)] = best;
}

}  // namespace tracestep::cli
