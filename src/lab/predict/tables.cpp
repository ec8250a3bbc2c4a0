// The tables of predictions.
#include <cmath>

#include "base/units.h"
#include "lab/measure/run_columns.h"
#include "lab/measure/statistics.h"
#include "lab/predict/predict.h"
#include "lab/report/digits.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

using P = const Prediction&;

bool has_measured(P p) {
  return p.status == Status::kOk;
}

bool has_time(P p) {
  return p.time.ms > 0;
}

std::int64_t limit_of(P p) {
  return p.run.place.memory_limit_bytes;
}

bool fits(P p) {
  return limit_of(p) == 0 || p.peak_bytes <= limit_of(p);
}

Json status_cell(P p) {
  if (p.status) return name_of(*p.status);
  return when(limit_of(p) > 0, name_of(fits(p) ? Status::kOk : Status::kOutOfMemory));
}

double most_energy_j(P p) {
  return p.watts * p.time.ms * 1e-3 * p.run.parallel.ranks;
}

double energy_j(P p) {
  return p.time.joules * p.run.parallel.ranks;
}

double error_of(P p) {
  return 100.0 * (p.time.ms / p.measured_ms - 1.0);
}

// A row of a table of a step's parts: the time of a component in a phase, or between kernels.
struct PartRow {
  std::string phase, component;
  double ms = 0, share_percent = 0;
  std::optional<double> measured_ms = {};
};

std::vector<PartRow> part_rows(P p) {
  std::vector<PartRow> out;
  for (std::size_t i = 0; i < p.time.parts.size(); ++i) {
    const PredictedPart& part = p.time.parts[i];
    out.push_back({std::string(name_of(part.phase)), part.component, part.ms,
                   percent_of(part.ms, p.time.ms)});
    if (has_measured(p)) out.back().measured_ms = p.measured_parts_ms[i];
  }
  const double beside = p.time.beside_ms;
  if (beside > 0) {
    out.push_back({"", "beside other kernels", -beside, -percent_of(beside, p.time.ms)});
  }
  const double between = p.time.ms - (p.time.kernels_ms - beside);
  out.push_back({"", "between kernels", between, percent_of(between, p.time.ms)});
  return out;
}

Json parts_json(P p) {
  Json out = Json::array();
  for (const PredictedPart& part : p.time.parts) {
    out.push_back(Json::Object{
        {"phase", name_of(part.phase)}, {"component", part.component}, {"ms", part.ms}});
  }
  return out;
}

// Names the peaks that MFU and HFU are shares of; empty where no peak is known.
std::string utilisation_note(std::span<const Prediction> predictions) {
  std::set<std::string> peaks;
  for (P p : predictions) {
    if (p.peak_tflops <= 0) continue;
    peaks.insert(fmt::format("{:g} TFLOP/s in {}", p.peak_tflops, name_of(p.run.precision)));
  }
  if (peaks.empty()) return {};
  return fmt::format(
      "MFU and HFU: shares of the dense peak of the data sheet, {}. MFU counts 6 FLOPs for each "
      "weight of a product and token (2 without backward) and attention over all scores; HFU the "
      "products that run, recomputed ones among them",
      fmt::join(peaks, ", "));
}

// Adds facts that the rows lack: errors, the effect of the history, steps beyond the limit, steps
// without a time, and kernels that were not calibrated.
void add_notes(std::span<const Prediction> predictions, Table& table) {
  std::set<std::string> uncalibrated;
  std::vector<double> errors;
  std::int64_t beyond_limit = 0;
  for (P p : predictions) {
    uncalibrated.insert(p.time.uncalibrated.begin(), p.time.uncalibrated.end());
    if (has_measured(p)) errors.push_back(error_of(p));
    if (!p.status && !fits(p)) ++beyond_limit;
    if (!p.detail.empty()) table.notes.push_back(fmt::format("{}: {}", label_of(p.run), p.detail));
  }
  if (!errors.empty()) table.notes.push_back(error_summary(errors));
  if (const std::string note = correction_note(predictions); !note.empty()) {
    table.notes.push_back("times are " + note);
  }
  if (std::string note = utilisation_note(predictions); !note.empty()) {
    table.notes.push_back(std::move(note));
  }
  if (beyond_limit > 0) {
    const std::string steps =
        predictions.size() == 1
            ? "the step does"
            : fmt::format("{} of {} steps do", beyond_limit, predictions.size());
    table.notes.push_back(fmt::format("{} not fit in {}: fit says what would", steps,
                                      format_bytes(limit_of(predictions.front()))));
  }
  if (!uncalibrated.empty()) {
    table.notes.push_back(
        fmt::format("{} kernels were not calibrated, such as {}: their times are those of kernels "
                    "of their kind, and may be half or twice as long; the band is as wide",
                    uncalibrated.size(), *uncalibrated.begin()));
  }
}

}  // namespace

std::string correction_note(std::span<const Prediction> predictions) {
  std::vector<double> factors;
  std::int64_t cells = 0;
  for (P p : predictions) {
    if (p.correction.cells == 0) continue;
    factors.push_back(p.correction.factor);
    cells = std::max(cells, p.correction.cells);
  }
  if (factors.empty()) return {};
  const std::string least = fmt::format("{:.2f}", min_of(factors)),
                    most = fmt::format("{:.2f}", max_of(factors));
  constexpr double kDoubtful = 1.5;  // far beyond the error of a calibration
  const bool is_doubtful = max_of(factors) > kDoubtful || min_of(factors) < 1 / kDoubtful;
  return fmt::format(
      "{}{} times the calibration's, as {} checked step{} of the history suggest{}{}", least,
      least == most ? "" : " to " + most, cells, cells == 1 ? "" : "s", cells == 1 ? "s" : "",
      is_doubtful ? "; so much is more than an error: other work disturbed the checks "
                    "or the calibration, and a new calibration starts afresh"
                  : "");
}

std::string error_summary(std::span<const double> errors_percent) {
  if (errors_percent.empty()) return {};
  std::vector<double> sizes;
  for (double e : errors_percent) sizes.push_back(std::abs(e));
  return fmt::format(
      "error: median {:.1f} %, 90th percentile {:.1f} %, largest {:.1f} %, of {} cells",
      median_of(sizes), quantile_of(sizes, 0.9), max_of(sizes), sizes.size());
}

Table prediction_table(std::span<const Prediction> predictions) {
  Fields<Prediction> fields{};
  fields.add(axis_columns(), [](P p) { return &p.run; });
  fields.add(col::predicted_ms.titled("predicted", "a step's wall time"),
             [](P p) { return when(has_time(p), p.time.ms); });
  fields.add(col::low_ms("nine of ten cells are within the band"),
             [](P p) { return when(has_time(p), p.time.low_ms); });
  fields.add(col::high_ms, [](P p) { return when(has_time(p), p.time.high_ms); });
  fields.add(col::tokens_per_s("of all ranks together"),
             [](P p) { return when(has_time(p), tokens_per_s(p)); });
  if (std::ranges::any_of(predictions, [](P p) { return p.peak_tflops > 0; })) {
    fields.add(with_digits(1, col::mfu_percent),
               [](P p) { return when(mfu_percent(p) > 0, mfu_percent(p)); });
    fields.add(real_column("hfu_percent", "HFU", "%", 1, "FLOPs that run, likewise"),
               [](P p) { return when(hfu_percent(p) > 0, hfu_percent(p)); });
  }
  if (std::ranges::any_of(predictions, [](P p) { return p.run.parallel.is_on(); })) {
    fields.add(real_column("collectives_ms", "collectives", "ms", -1, "one after the other"),
               [](P p) { return when(has_time(p), p.time.collectives_ms); });
    fields.add(
        real_column("exposed_ms", "exposed", "ms", -1, "of the step, while no other kernel runs"),
        [](P p) { return when(has_time(p), p.time.exposed_ms); });
  }
  if (std::ranges::any_of(predictions, [](P p) { return p.time.joules > 0; })) {
    fields.add(
        real_column("energy_j", "energy", "J", kTwoDigits,
                    "of a step on all ranks, by the power that steps of the calibration drew"),
        [](P p) { return when(p.time.joules > 0, energy_j(p)); });
  }
  fields.add(col::peak_bytes.titled("predicted peak"), &Prediction::peak_bytes);
  if (std::ranges::any_of(predictions, [](P p) { return p.host_bytes > 0; })) {
    fields.add(col::host_bytes, &Prediction::host_bytes);
  }
  fields.add(col::launches("each runs one kernel or more"),
             [](P p) { return when(has_time(p), p.time.launches); });
  const bool is_checked =
      std::ranges::any_of(predictions, [](P p) { return p.status.has_value(); });
  if (is_checked || std::ranges::any_of(predictions, [](P p) { return limit_of(p) > 0; })) {
    Column status = col::status("ok, or oom against the memory limit");
    fields.add(is_checked ? std::move(status) : without_run(std::move(status)), status_cell);
  } else {  // the answer's page asks how many do not fit
    fields.add(data_only(col::status("ok: there is no memory limit")),
               [](P) { return Json(name_of(Status::kOk)); });
  }
  if (is_checked) {
    fields.add(col::measured_ms("median of the timed steps"),
               [](P p) { return when(has_measured(p), p.measured_ms); });
    fields.add(col::error_percent("of the prediction"),
               [](P p) { return when(has_measured(p), error_of(p)); });
  }
  fields.add(data_only(real_column("most_energy_j", {}, "J", -1,
                                   "of a step on all ranks, at the power that they are allowed")),
             [](P p) { return when(has_time(p) && p.watts > 0, most_energy_j(p)); });
  fields.add(data_only(col::model_ms("before correction by the history")),
             [](P p) { return when(has_time(p), p.model_ms); });
  fields.add(data_only(int_column("related_cells", {}, "of the history")),
             [](P p) { return p.correction.cells; });
  fields.add(data_only(structured_column("parts", "time by phase and component")), parts_json);
  fields.add(data_only(col::where("on which devices; empty: on this one")),
             [](P p) { return or_null(p.where); });
  fields.add(data_only(col::batch("of all ranks together")), [](P p) { return p.run.shape.batch; });
  fields.add(data_only(col::ranks), [](P p) { return p.run.parallel.ranks; });
  fields.add(col::source, [](P p) { return or_null(p.source); });
  fields.add(data_only(col::assumes("of the device, beyond what is known of it")),
             [](P p) { return or_null(p.assumes); });
  Table table = table_of("predictions", "Predicted time of a step", fields, predictions);
  show_unusual(table);
  add_notes(predictions, table);
  return table;
}

Table prediction_parts_table(const Prediction& prediction) {
  using R = const PartRow&;
  Fields<PartRow> fields = {{col::phase, [](R r) { return or_null(r.phase); }},
                            {col::component, &PartRow::component},
                            {with_digits(-1, col::ms.titled("predicted")), &PartRow::ms},
                            {with_digits(1, col::share_percent), &PartRow::share_percent}};
  if (has_measured(prediction)) {
    fields.add(col::measured_ms("kernels of a recorded step"),
               [](R r) { return or_null(r.measured_ms); });
  }
  return table_of("parts", "Where the time goes: " + label_of(prediction.run), fields,
                  part_rows(prediction));
}

Table history_table(std::span<const CheckedCell> history) {
  using C = const CheckedCell&;
  const Fields<CheckedCell> fields = {
      {text_column("date_utc", "checked"), &CheckedCell::date_utc},
      {text_column("step"), [](C c) { return label_of(c.key); }},
      {col::predicted_ms.titled("predicted", "as it was told, corrected by the checks before it"),
       &CheckedCell::predicted_ms},
      {col::model_ms.titled("uncorrected", "by the calibration alone"), &CheckedCell::model_ms},
      {col::measured_ms, &CheckedCell::measured_ms},
      {col::error_percent("of what was told"), &CheckedCell::error_percent},
      {text_column("calibrated_utc", "calibrated"), &CheckedCell::calibrated_utc},
      {data_only(col::cell), &CheckedCell::key}};
  Table table = table_of("history", "Predictions that were checked", fields, history);
  std::vector<double> errors;
  for (C c : history) errors.push_back(c.error_percent());
  if (!errors.empty()) table.notes.push_back(error_summary(errors));
  return table;
}

}  // namespace tracestep
