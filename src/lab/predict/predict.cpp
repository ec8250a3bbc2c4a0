#include "lab/predict/predict.h"

#include <algorithm>
#include <cmath>

#include "analysis/assumptions.h"
#include "analysis/cost.h"
#include "analysis/memory_map.h"
#include "analysis/origins.h"
#include "exec/executor.h"
#include "passes/recompute_budget.h"
#include "spec/parse_words.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

void correct(const Correction& correction, StepTime& time) {
  const double factor = correction.factor;
  time.ms *= factor;
  time.kernels_ms *= factor;
  time.beside_ms *= factor;
  time.collectives_ms *= factor;
  time.exposed_ms *= factor;
  time.joules *= factor;
  for (PredictedPart& part : time.parts) part.ms *= factor;
  for (PredictedClass& of_class : time.classes) of_class.ms *= factor;
  time.low_ms = time.ms / (1 + correction.spread);
  time.high_ms = time.ms * (1 + correction.spread);
}

std::vector<double> measured_parts(const CellResult& cell,
                                   const std::vector<PredictedPart>& parts) {
  std::vector<double> out(parts.size(), 0.0);
  for (const Span& span : cell.spans) {
    const Origin& origin = cell.program.node(span.node).origin();
    const auto found = std::ranges::find_if(parts, [&](const PredictedPart& part) {
      return part.phase == origin.phase && part.component == component_of(origin.path);
    });
    if (found == parts.end()) continue;
    out[static_cast<std::size_t>(found - parts.begin())] +=
        static_cast<double>(span.end_ns - span.start_ns) * 1e-6;
  }
  return out;
}

}  // namespace

Prediction predict_program(const RunSpec& run, const Program& program, const DeviceTraits& traits,
                           const Predictor& predictor) {
  Prediction out{.run = run,
                 .where = where_of(run, predictor.sheet),
                 .source = predictor.model.source(),
                 .assumes = assumptions_of(program)};
  out.time = predictor.model.time_of(run, program, traits, predictor.link);
  out.model_ms = out.time.ms;
  out.product_flops = static_cast<double>(gemm_flops(program));
  if (predictor.sheet != nullptr) {
    out.peak_tflops = predictor.sheet->product_tflops(run.precision);
    out.watts = predictor.sheet->watts;
  }
  if (!predictor.model.is_measured()) return out;
  out.correction = correction_for(run, predictor.history, predictor.model.date_utc(),
                                  out.time.high_ms / out.time.ms - 1);
  correct(out.correction, out.time);
  return out;
}

double correction_factor(const RunSpec& run, const Predictor& predictor) {
  if (!predictor.model.is_measured()) return 1;
  return correction_for(run, predictor.history, predictor.model.date_utc(), 0).factor;
}

Prediction predict_run(const RunSpec& run, const DeviceTraits& traits, const Predictor& predictor) {
  const Program program = step_program(run, traits);
  Prediction out = predict_program(run, program, traits, predictor);
  out.peak_bytes = predicted_peak_bytes(run.executor, program, traits);
  out.host_bytes = host_bytes(program);
  return out;
}

std::string where_of(const RunSpec& run, const DevicePeaks* sheet) {
  const int ranks = run.parallel.ranks;
  if (!run.parallel.is_on()) return sheet == nullptr ? "" : "one " + sheet->name;
  const std::string devices =
      sheet == nullptr ? fmt::format("{} GPUs", ranks) : fmt::format("{} × {}", ranks, sheet->name);
  return fmt::format("{} ({})", devices, name_of(run.parallel));
}

double tokens_per_s(const Prediction& p) {
  if (p.time.ms <= 0) return 0.0;
  return static_cast<double>(tokens_of_step(p.run)) / (p.time.ms * 1e-3);
}

double mfu_percent(const Prediction& p) {
  if (p.time.ms <= 0 || p.peak_tflops <= 0) return 0.0;
  return 100 * needed_flops(p.run) / (p.time.ms * 1e9 * p.peak_tflops * p.run.parallel.ranks);
}

double hfu_percent(const Prediction& p) {
  if (p.time.ms <= 0 || p.peak_tflops <= 0) return 0.0;
  return 100 * p.product_flops / (p.time.ms * 1e9 * p.peak_tflops);
}

Prediction prediction_beyond_budget(const RunSpec& run, const BudgetNotMet& error) {
  return {.run = run,
          .peak_bytes = error.least_peak_bytes(),
          .detail = error.what(),
          .status = Status::kOutOfMemory};
}

void check_prediction(const DeviceFactory& make_device, const Protocol& protocol,
                      const StopSignal* stop, Prediction& prediction) {
  const CellResult cell = visit(make_device, {.step = prediction.run, .protocol = protocol}, stop);
  prediction.status = cell.status;
  prediction.detail = cell.detail;
  prediction.lack = cell.lack;
  if (cell.status != Status::kOk) return;
  prediction.measured_ms = cell.wall_ms;
  prediction.measured_parts_ms = measured_parts(cell, prediction.time.parts);
}

}  // namespace tracestep
