#include "lab/attention/tables.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "base/error.h"
#include "base/precision.h"
#include "base/units.h"
#include "lab/measure/facts_json.h"
#include "lab/measure/statistics.h"
#include "lab/measure/validity.h"
#include "lab/report/columns.h"

namespace tracestep {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

Json list(const std::vector<double>& values) {
  Json out = Json::array();
  for (double v : values) out.push_back(v);
  return out;
}

std::string label_of(const AttentionSpec& spec) {
  return fmt::format("width {} {} {} {}", spec.width, spec.causal ? "causal" : "unmasked",
                     name_of(spec.attention), saved_name(spec));
}

// Bytes of one N² tensor: B·S² elements of the dtype that scores are computed in.
double square_bytes(const AttentionSpec& spec) {
  const Precision precision = parse_precision("--precision", spec.precision);
  // Under autocast softmax runs in float32, over scores of the low dtype.
  const DType dtype = precision.autocast ? DType::kF32 : precision.parameters;
  return static_cast<double>(spec.batch) * static_cast<double>(size_of(dtype));
}

std::vector<Column> part_columns(const std::string& part) {
  const auto ms = [&](const char* suffix, const char* title, const char* text) {
    return real_column(part + suffix, part + title, "ms", 3, text);
  };
  return {
      {.name = part + "_samples_ms",
       .kind = ColumnKind::kReals,
       .description = "from an idle device to an idle one"},
      {.name = part + "_warmup_ms", .kind = ColumnKind::kReals},
      ms("_median_ms", "", "median of the samples"),
      data_only(ms("_mean_ms", " mean", "mean")),
      ms("_std_ms", " std", "sample standard deviation"),
      data_only(ms("_interval_low_ms", " from", "lower end of the 95 % interval of the median")),
      data_only(ms("_interval_high_ms", " to", "upper end")),
      data_only(ms("_busy_ms", " busy", "sum of kernel times, median of three recorded steps")),
      data_only(int_column(part + "_flops", "", "of matrix products")),
      real_column(part + "_tflops", part, "TFLOP/s", 3, "flops over the median"),
      data_only(int_column(part + "_launches", "", "kernels"))};
}

std::vector<Column> columns() {
  std::vector<Column> out = {
      int_column("batch", "", "B"),
      int_column("width", "", "D; there are no heads"),
      int_column("context", "", "S"),
      {.name = "causal", .kind = ColumnKind::kBool},
      text_column("attention", "", "its form: naive or flash"),
      text_column("saved", "", "N² tensors alive when backward starts, or lse, one row of numbers"),
      text_column("precision"),
      text_column("device"),
      text_column("status", "", "ok or oom"),
      int_column("steps", "n", "timed steps"),
  };
  for (const char* part : {"forward", "backward", "whole"}) {
    for (Column& column : part_columns(part)) out.push_back(std::move(column));
  }
  for (Column column :
       {real_column("backward_over_forward", "bwd / fwd", "", 2, "of the medians"),
        bytes_column("before_backward_bytes", "before backward",
                     "live requested bytes when forward is done"),
        data_only(bytes_column("predicted_before_backward_bytes", "predicted",
                               "the same from the program alone")),
        bytes_column("peak_bytes", "peak", "the most of the whole step"),
        bytes_column("predicted_peak_bytes", "predicted peak", "the same from the program alone"),
        data_only(bytes_column("saved_bytes", "", "N² tensors among those before backward")),
        real_column("bytes_per_s2", "bytes / S²", "", 2, "before backward"),
        data_only(real_column("roof_tflops", "roof", "TFLOP/s", 3)),
        {.name = "facts_before", .kind = ColumnKind::kStructured, .data_only = true},
        {.name = "facts_after", .kind = ColumnKind::kStructured, .data_only = true},
        data_only(text_column("throttled", "", "what slowed the device down")),
        data_only(text_column("detail", "", "why the status is not ok"))}) {
    out.push_back(std::move(column));
  }
  return out;
}

void add_part(const AttentionPart& part, bool has_speed, bool ok, std::vector<Json>& row) {
  const Summary s = summarize(part.samples_ms);
  const Interval interval = median_interval(part.samples_ms);
  const bool has_interval = ok && interval.coverage >= 0.95;
  const auto when_ok = [ok](double v) { return ok ? Json(v) : Json(); };
  row.push_back(list(part.samples_ms));
  row.push_back(list(part.warmup_ms));
  row.push_back(when_ok(s.median));
  row.push_back(when_ok(s.mean));
  row.push_back(when_ok(s.sample_std));
  row.push_back(has_interval ? Json(interval.low) : Json());
  row.push_back(has_interval ? Json(interval.high) : Json());
  row.push_back(when_ok(part.busy_ms));
  row.push_back(part.flops);
  row.push_back(has_speed ? Json(static_cast<double>(part.flops) / s.median * 1e-9) : Json());
  row.push_back(part.launches);
}

// The part as a row of `bench`, for the validity checker.
ResultRow as_row(const AttentionResult& r, const AttentionPart& part, const char* mode,
                 const Json& environment) {
  Json row = Json::object();
  row["size"] = fmt::format("attention {}", label_of(r.spec));
  row["context"] = r.spec.context;
  row["mode"] = mode;
  row["precision"] = r.spec.precision;
  row["device"] = r.device;
  row["status"] = r.status;
  row["samples_ms"] = list(part.samples_ms);
  row["warmup_ms"] = list(part.warmup_ms);
  const double median = median_of(part.samples_ms);
  if (r.status == "ok" && r.computes && median > 0) {
    row["median_ms"] = row["wall_ms"] = median;
    row["device_busy_ms"] = part.busy_ms;
    row["flops"] = part.flops;
    row["tflops"] = static_cast<double>(part.flops) / median * 1e-9;
    row["peak_bytes"] = r.peak_bytes;
    row["predicted_peak_bytes"] = r.predicted_peak_bytes;
    row["saved_bytes"] = r.saved_bytes;
  }
  row["launches"] = part.launches;
  if (r.roof_tflops > 0) row["roof_tflops"] = r.roof_tflops;
  if (const std::string why = throttled_between(r.facts_before, r.facts_after); !why.empty()) {
    row["throttled"] = why;
  }
  return ResultRow(std::move(row), environment);
}

std::vector<Json> row_of(const AttentionResult& r) {
  const bool ok = r.status == "ok";
  const double forward = median_of(r.forward.samples_ms);
  const double backward = median_of(r.backward.samples_ms);
  const bool has_speed = ok && r.computes && forward > 0 && backward > 0;
  const auto s = static_cast<double>(r.spec.context);
  const auto when_ok = [ok](Json v) { return ok ? std::move(v) : Json(); };
  const std::string throttled = throttled_between(r.facts_before, r.facts_after);
  std::vector<Json> row = {r.spec.batch,
                           r.spec.width,
                           r.spec.context,
                           r.spec.causal,
                           name_of(r.spec.attention),
                           saved_name(r.spec),
                           r.spec.precision,
                           r.device,
                           r.status,
                           static_cast<std::int64_t>(r.forward.samples_ms.size())};
  add_part(r.forward, has_speed, ok, row);
  add_part(r.backward, has_speed, ok, row);
  add_part(r.whole, has_speed, ok, row);
  for (Json cell : {has_speed ? Json(backward / forward) : Json(), when_ok(r.before_backward_bytes),
                    Json(r.predicted_before_backward_bytes), when_ok(r.peak_bytes),
                    Json(r.predicted_peak_bytes), Json(r.saved_bytes),
                    when_ok(static_cast<double>(r.before_backward_bytes) / (s * s)),
                    r.roof_tflops > 0 ? Json(r.roof_tflops) : Json(), to_json(r.facts_before),
                    to_json(r.facts_after), throttled.empty() ? Json() : Json(throttled),
                    r.detail.empty() ? Json() : Json(r.detail)}) {
    row.push_back(std::move(cell));
  }
  return row;
}

// Solves the symmetric 3 × 3 system m x = y by elimination with pivoting.
std::array<double, 3> solve(std::array<std::array<double, 3>, 3> m, std::array<double, 3> y) {
  for (std::size_t i = 0; i < 3; ++i) {
    std::size_t pivot = i;
    for (std::size_t r = i + 1; r < 3; ++r) {
      if (std::abs(m[r][i]) > std::abs(m[pivot][i])) pivot = r;
    }
    std::swap(m[i], m[pivot]);
    std::swap(y[i], y[pivot]);
    for (std::size_t r = i + 1; r < 3; ++r) {
      const double factor = m[r][i] / m[i][i];
      for (std::size_t c = i; c < 3; ++c) m[r][c] -= factor * m[i][c];
      y[r] -= factor * y[i];
    }
  }
  std::array<double, 3> x{};
  for (std::size_t i = 3; i-- > 0;) {
    x[i] = y[i];
    for (std::size_t c = i + 1; c < 3; ++c) x[i] -= m[i][c] * x[c];
    x[i] /= m[i][i];
  }
  return x;
}

}  // namespace

QuadraticFit fit_quadratic(std::span<const double> s, std::span<const double> values) {
  TRACESTEP_CHECK(s.size() == values.size() && std::set<double>(s.begin(), s.end()).size() >= 3,
                  "a quadratic through {} points", s.size());
  // In units of the largest abscissa, so that the powers stay near one.
  const double scale = *std::ranges::max_element(s);
  std::array<std::array<double, 3>, 3> m{};
  std::array<double, 3> y{};
  for (std::size_t i = 0; i < s.size(); ++i) {
    const double t = s[i] / scale;
    const std::array<double, 3> powers = {t * t, t, 1};
    for (std::size_t r = 0; r < 3; ++r) {
      y[r] += powers[r] * values[i];
      for (std::size_t c = 0; c < 3; ++c) m[r][c] += powers[r] * powers[c];
    }
  }
  const std::array<double, 3> x = solve(m, y);
  QuadraticFit fit{x[0] / (scale * scale), x[1] / scale, x[2]};
  for (std::size_t i = 0; i < s.size(); ++i) {
    const double at = (fit.a * s[i] + fit.b) * s[i] + fit.c;
    fit.largest_error = std::max(fit.largest_error, std::abs(at - values[i]) / values[i]);
  }
  return fit;
}

Table attention_table(std::span<const AttentionResult> results, const Json& environment) {
  Table table{.name = "attention",
              .title = "Attention alone: forward, backward, and the bytes in between",
              .columns = columns()};
  std::vector<ResultRow> rows;
  for (const AttentionResult& r : results) {
    table.add_row(row_of(r));
    rows.push_back(as_row(r, r.forward, "forward", environment));
    rows.push_back(as_row(r, r.backward, "backward", environment));
  }
  table.notes.push_back(
      "forward: from the call until the last kernel of y is done; backward: from the gradient of y "
      "until those of q, k and v are done, the forward pass not in it; whole: steps of their own "
      "that stop nowhere, with the loss's two small kernels");
  const bool computed = std::ranges::any_of(results, &AttentionResult::computes);
  if (!computed) {
    table.notes.push_back("this device plans and counts: bytes are those of a run, times are not");
    return table;
  }
  for (std::string& note : validity_notes(rows)) table.notes.push_back(std::move(note));
  return table;
}

Table attention_scaling_table(std::span<const AttentionResult> results) {
  Table table{.name = "attention_scaling",
              .title = "How the bytes grow with the context S: a·S² + b·S + c",
              .columns = {int_column("batch"),
                          int_column("width"),
                          {.name = "causal", .kind = ColumnKind::kBool},
                          text_column("attention"),
                          text_column("saved"),
                          text_column("precision"),
                          int_column("points", "", "contexts that ran"),
                          real_column("bytes_per_s2", "a", "bytes / S²", 3, "before backward"),
                          real_column("tensors", "N² tensors", "", 3,
                                      "a over the bytes of one: B elements per S²"),
                          real_column("bytes_per_s", "b", "bytes / S", 1),
                          real_column("largest_error_percent", "error", "%", 4,
                                      "largest difference between fit and bytes"),
                          real_column("peak_bytes_per_s2", "a of the peak", "bytes / S²", 3),
                          real_column("peak_tensors", "N² in peak", "", 3)}};
  using Key = std::tuple<std::int64_t, std::int64_t, bool, std::string, std::string>;
  std::map<Key, std::vector<const AttentionResult*>> groups;
  for (const AttentionResult& r : results) {
    if (r.status != "ok") continue;
    groups[{r.spec.batch, r.spec.width, r.spec.causal, saved_name(r.spec), r.spec.precision}]
        .push_back(&r);
  }
  for (const auto& [key, cells] : groups) {
    std::vector<double> s, before, peak;
    for (const AttentionResult* r : cells) {
      s.push_back(static_cast<double>(r->spec.context));
      before.push_back(static_cast<double>(r->before_backward_bytes));
      peak.push_back(static_cast<double>(r->peak_bytes));
    }
    if (std::set<double>(s.begin(), s.end()).size() < 3) continue;
    const QuadraticFit fit = fit_quadratic(s, before), of_peak = fit_quadratic(s, peak);
    const AttentionSpec& spec = cells.front()->spec;
    const double one = square_bytes(spec);
    table.add_row({spec.batch, spec.width, spec.causal, name_of(spec.attention), saved_name(spec),
                   spec.precision, static_cast<std::int64_t>(cells.size()), fit.a, fit.a / one,
                   fit.b, 100 * fit.largest_error, of_peak.a, of_peak.a / one});
    const AttentionResult& last = **std::ranges::max_element(
        cells, {}, [](const AttentionResult* r) { return r->spec.context; });
    const auto largest = static_cast<double>(last.spec.context);
    const auto bytes = static_cast<double>(last.before_backward_bytes);
    table.notes.push_back(fmt::format(
        "{}: {:.2f} MiB / {}² = {:.0f} / {:.0f} = {:.2f} bytes per S²; one N² tensor is B·{} = {} "
        "bytes per S²",
        label_of(spec), bytes / kMiB, last.spec.context, bytes, largest * largest,
        bytes / (largest * largest), one / static_cast<double>(spec.batch), one));
  }
  return table;
}

}  // namespace tracestep
