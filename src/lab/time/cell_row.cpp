// A cell as a row of `bench`: the columns, what each says, and the values in their order.
#include "lab/measure/facts_json.h"
#include "lab/measure/sampling.h"
#include "lab/measure/statistics.h"
#include "lab/time/cell.h"

namespace tracestep {

std::vector<Column> cell_columns() {
  using K = ColumnKind;
  const auto real = [](std::string name, std::string title, std::string text) {
    return Column{.name = std::move(name),
                  .title = std::move(title),
                  .unit = "ms",
                  .kind = K::kReal,
                  .digits = 3,
                  .description = std::move(text)};
  };
  return {
      {.name = "size", .description = "preset, or custom"},
      {.name = "context", .kind = K::kInt, .description = "tokens per row (T)"},
      {.name = "batch", .kind = K::kInt, .description = "rows (B)"},
      {.name = "vocab", .kind = K::kInt, .description = "vocabulary (V)", .data_only = true},
      {.name = "mode", .description = "what a step does"},
      {.name = "precision", .description = "of parameters and activations"},
      {.name = "ops", .description = "granularity of the program"},
      {.name = "attention", .description = "its form: naive or flash"},
      {.name = "executor", .description = "how it runs", .data_only = true},
      {.name = "device", .description = "where it runs"},
      {.name = "status", .description = "ok or oom"},
      {.name = "parameters", .kind = K::kInt, .description = "elements", .data_only = true},
      {.name = "samples_ms", .kind = K::kReals, .description = "wall time of each timed step"},
      real("mean_ms", "mean", "of the samples"),
      real("std_ms", "std", "sample standard deviation"),
      real("median_ms", "median", "of the samples"),
      real("min_ms", "min", "of the samples"),
      real("p95_ms", "p95", "95th percentile, linear between samples"),
      real("interval_low_ms", "95 % from",
           "lower end of the 95 % interval of the median, an order statistic; empty with fewer "
           "than six samples"),
      real("interval_high_ms", "95 % to", "the upper end"),
      {.name = "noise_percent",
       .title = "noise",
       .unit = "±%",
       .kind = K::kReal,
       .digits = 2,
       .description = "half that interval, in percent of the median"},
      {.name = "stopped_by",
       .description = "why sampling ended: steps (as many as asked for), noise (--max-noise is "
                      "met), max-steps or max-seconds (it is not)",
       .data_only = true},
      {.name = "warmup_ms", .kind = K::kReals, .description = "wall time of each warm-up step"},
      real("wall_ms", "wall", "median time from call to finished"),
      real("issue_ms", "issue", "host time of the wall outside kernels"),
      real("device_span_ms", "span", "first kernel start to last kernel end"),
      real("device_busy_ms", "busy", "sum of kernel times, from separate recorded steps"),
      {.name = "peak_bytes",
       .title = "peak",
       .kind = K::kBytes,
       .description = "requested bytes at the peak, by the allocator"},
      {.name = "predicted_peak_bytes",
       .title = "predicted",
       .kind = K::kBytes,
       .description = "the same from the program alone"},
      {.name = "untracked_bytes",
       .title = "untracked",
       .kind = K::kBytes,
       .description = "physical memory outside the allocator's segments, since the start"},
      {.name = "outside_bytes",
       .kind = K::kBytes,
       .description = "the same in all: the program's code and libraries; on a GPU the driver's "
                      "count of used memory, other processes included, less the segments",
       .data_only = true},
      {.name = "saved_bytes",
       .kind = K::kBytes,
       .description = "forward values kept for backward, by the program",
       .data_only = true},
      {.name = "major_faults",
       .kind = K::kInt,
       .description = "pages that came from disk during the timed steps",
       .data_only = true},
      {.name = "flops", .kind = K::kInt, .description = "of matrix products", .data_only = true},
      {.name = "tflops",
       .title = "TFLOP/s",
       .kind = K::kReal,
       .digits = 3,
       .description = "flops over the median; empty where nothing is computed"},
      {.name = "roof_tflops",
       .title = "roof",
       .unit = "TFLOP/s",
       .kind = K::kReal,
       .digits = 3,
       .description = "what the device reaches at best, measured before the first row",
       .data_only = true},
      {.name = "tokens_per_s",
       .title = "tokens/s",
       .kind = K::kReal,
       .digits = 0,
       .description = "batch times context over the median; empty likewise"},
      {.name = "launches", .kind = K::kInt, .description = "kernels per step"},
      {.name = "instrumented_wall_ms",
       .kind = K::kReal,
       .digits = 3,
       .description = "median wall of the recorded steps",
       .data_only = true},
      {.name = "profiled",
       .kind = K::kBool,
       .description = "a profiler listened to the timed steps",
       .data_only = true},
      {.name = "choices",
       .description = "how kernels were chosen where there is a choice",
       .data_only = true},
      {.name = "throttled",
       .description = "what slowed the device down during the timed steps",
       .data_only = true},
      {.name = "facts_before",
       .kind = K::kStructured,
       .description = "clocks, power and temperature of the device before the timed steps",
       .data_only = true},
      {.name = "facts_after",
       .kind = K::kStructured,
       .description = "the same after them",
       .data_only = true},
      {.name = "detail", .description = "why the status is not ok", .data_only = true},
  };
}

std::vector<Json> cell_row(const CellResult& r) {
  const bool ok = r.status == "ok";
  const Summary s = summarize(r.samples_ms);
  const Interval interval = median_interval(r.samples_ms);
  const bool has_interval = ok && interval.coverage >= 0.95;
  const auto when_ok = [&](Json v) { return ok ? v : Json(); };
  const auto text = [](const std::string& v) { return v.empty() ? Json() : Json(v); };
  const auto list = [](const std::vector<double>& values) {
    Json out = Json::array();
    for (double v : values) out.push_back(v);
    return out;
  };
  const StepSpec& spec = r.spec.step;
  const double seconds = s.median * 1e-3;
  const auto tokens = static_cast<double>(spec.shape.batch * spec.shape.context);
  const bool has_speed = ok && r.computes && seconds > 0.0;
  return {spec.model.name,
          spec.shape.context,
          spec.shape.batch,
          spec.model.vocab,
          name_of(spec.mode),
          r.spec.precision,
          name_of(spec.ops),
          name_of(spec.attention),
          r.spec.executor,
          r.device,
          r.status,
          r.parameters,
          list(r.samples_ms),
          when_ok(s.mean),
          when_ok(s.sample_std),
          when_ok(s.median),
          when_ok(s.min),
          when_ok(s.p95),
          has_interval ? Json(interval.low) : Json(),
          has_interval ? Json(interval.high) : Json(),
          has_interval ? Json(noise_percent_of(r.samples_ms)) : Json(),
          when_ok(text(r.stopped_by)),
          list(r.warmup_ms),
          when_ok(r.wall_ms),
          when_ok(r.issue_ms),
          when_ok(r.device_span_ms),
          when_ok(r.device_busy_ms),
          when_ok(r.peak_bytes),
          r.predicted_peak_bytes,
          when_ok(r.untracked_bytes ? Json(*r.untracked_bytes) : Json()),
          when_ok(r.outside_bytes ? Json(*r.outside_bytes) : Json()),
          r.saved_bytes,
          when_ok(r.major_faults),
          r.flops,
          has_speed ? Json(static_cast<double>(r.flops) / seconds * 1e-12) : Json(),
          r.spec.roof_tflops > 0 ? Json(r.spec.roof_tflops) : Json(),
          has_speed ? Json(tokens / seconds) : Json(),
          r.launches,
          when_ok(r.instrumented_wall_ms),
          when_ok(r.profiled),
          text(r.choices),
          text(throttled_between(r.facts_before, r.facts_after)),
          to_json(r.facts_before),
          to_json(r.facts_after),
          text(r.detail)};
}

}  // namespace tracestep
