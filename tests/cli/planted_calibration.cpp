#include "cli/planted_calibration.h"

#include "lab/predict/kernel_work.h"
#include "ops/functions.h"
#include "spec/fields.h"
#include "spec/step_program.h"

namespace tracestep {

Calibration planted_calibration(Json identity) {
  ops::register_all();
  Calibration out{.identity = std::move(identity), .date_utc = "2026-01-02T03:04:05Z"};
  for (std::int64_t width : {16, 32, 48, 64}) {
    const RunSpec run{
        .model = {.vocab = 64, .d_model = width, .d_ff = width, .layers = 1, .heads = 1},
        .shape = {.batch = 2, .context = 8}};
    CalibratedStep step{.key = key_of(run), .executor = run.executor, .is_held_out = width == 64};
    for (const KernelWork& w : kernel_work(step_program(run), {}, {})) {
      const double us = 1 + at(w.amounts, Effort::kOperations) * 1e-3;
      step.kernels.push_back({w.kernel, w.kernel_class, {w.amounts, us}, 1});
      step.busy_ms += us * 1e-3;
      ++step.launches;
    }
    step.wall_ms = step.busy_ms * 1.1;
    out.steps.push_back(std::move(step));
  }
  return out;
}

}  // namespace tracestep
