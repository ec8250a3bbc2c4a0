// Fills in the options of a GPU's device from a run. The options are a struct of the back end,
// whose type is a template parameter because it must not be named here.
#pragma once

#include <string>

#include "base/env.h"
#include "run/memory_limit.h"
#include "run/run_spec.h"

namespace tracestep {

// The options of a GPU's device that follow from the run. `index`: its number for the driver.
template <class Options>
Options gpu_options(const RunSpec& run, int index) {
  const Place& place = run.place;
  Options out;
  out.index = index;
  out.guarded = env::guarded_allocator();
  out.pooled = !env::plain_allocator();
  out.memory_limit = limit_in_bytes(place);
  out.tf32 = run.precision.tf32;
  out.dependent_launch = run.launch_order == LaunchOrder::kDependent;
  // Stored choices of kernels are used. New choices would depend on measured times.
  out.tune = place.tune && !place.deterministic;
  if (place.is_tuned()) out.tune_file = place.tuning_path().string();
  out.kernel_cache = place.kernel_cache.empty() ? env::kernel_cache() : place.kernel_cache.string();
  return out;
}

}  // namespace tracestep
