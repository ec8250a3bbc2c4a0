#include "cli/roof.h"

#include <algorithm>

#include "backends/cpu/ceilings.h"
#include "cli/cuda.h"
#include "cli/devices.h"

namespace tracestep::cli {

double Roof::measure(const std::string& precision) const {
  if (cuda_index(run_.device)) return cuda_roof_tflops(run_, precision);
  if (run_.device != "cpu") return 0.0;
  // Every precision of the CPU is computed in float32. The best of some runs: this is a roof.
  constexpr int kRuns = 5;
  RunOptions unlimited = run_;
  unlimited.memory_limit_bytes = 0;
  const auto device = make_device(unlimited, precision);
  double best = 0.0;
  for (int i = 0; i < kRuns; ++i) best = std::max(best, measure_fma_gflops(*device) * 1e-3);
  return best;
}

double Roof::tflops(const std::string& precision) {
  const auto found = known_.find(precision);
  return found != known_.end() ? found->second : known_[precision] = measure(precision);
}

double Roof::tflops_for(const std::string& precision, double reached) {
  constexpr int kTries = 10;
  double best = tflops(precision);
  for (int i = 0; i < kTries && best > 0.0 && best < reached; ++i) {
    best = std::max(best, measure(precision));
  }
  return known_[precision] = best;
}

}  // namespace tracestep::cli
