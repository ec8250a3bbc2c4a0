#include "lab/attention/tables.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "lab/measure/no_times.h"
#include "lab/measure/processes.h"
#include "lab/measure/row_facts.h"
#include "lab/measure/validity.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

// Forward, backward or the whole step of a cell, with the statistics that several columns share.
struct PartRow {
  const PartTimes& part;
  bool ok, has_speed;
  TimedSamples all;
  Summary samples;
  Interval interval;

  PartRow(const PartTimes& p, const std::vector<double>& visits, bool is_ok, bool is_timed)
      : part(p),
        ok(is_ok),
        has_speed(is_timed),
        all(p.samples_ms, visits, true),
        samples(all.summary),
        interval(all.interval) {}

  bool has_interval() const { return ok && all.has_interval(); }
};

struct AttentionRow {
  const AttentionResult& r;
  bool ok;
  double forward_ms, backward_ms;
  bool has_speed;
  PartRow forward, backward, whole;

  explicit AttentionRow(const AttentionResult& result)
      : r(result),
        ok(result.status == Status::kOk),
        forward_ms(median_of(result.forward.samples_ms)),
        backward_ms(median_of(result.backward.samples_ms)),
        has_speed(ok && result.computes && forward_ms > 0 && backward_ms > 0),
        forward(result.forward, result.visits, ok, has_speed),
        backward(result.backward, result.visits, ok, has_speed),
        whole(result.whole, result.visits, ok, has_speed) {}
};

Fields<PartRow> part_fields(const std::string& part) {
  using P = const PartRow&;
  const auto ms = [&](const char* suffix, const char* title, const char* text) {
    return real_column(part + suffix, part + title, "ms", 3, text);
  };
  return {
      {as_samples(reals_column(part + "_samples_ms", "from an idle device to an idle one")),
       [](P p) { return list_of(p.part.samples_ms); }},
      {visits_field(part + "_samples_ms"), [](P p) { return visit_counts(p.all); }},
      {reals_column(part + "_warmup_ms"), [](P p) { return list_of(p.part.warmup_ms); }},
      {ms("_median_ms", "", "median of the samples"),
       [](P p) { return when(p.ok, p.samples.median); }},
      {data_only(ms("_mean_ms", " mean", "mean")), [](P p) { return when(p.ok, p.samples.mean); }},
      {ms("_std_ms", " std", "sample standard deviation"),
       [](P p) { return when(p.ok, finite_or_null(p.samples.sample_std)); }},
      {data_only(ms("_interval_low_ms", " from", "lower end of the 95 % interval of the median")),
       [](P p) { return when(p.has_interval(), p.interval.low); }},
      {data_only(ms("_interval_high_ms", " to", "upper end")),
       [](P p) { return when(p.has_interval(), p.interval.high); }},
      {data_only(ms("_busy_ms", " busy", "sum of kernel times, median of the recorded steps")),
       [](P p) { return when(p.ok, p.part.busy_ms); }},
      {data_only(int_column(part + "_flops", "", "of matrix products")),
       [](P p) { return p.part.flops; }},
      {real_column(part + "_tflops", part, "TFLOP/s", 3, "flops over the median"),
       [](P p) {
         return when(p.has_speed, static_cast<double>(p.part.flops) / p.samples.median * 1e-9);
       }},
      {as_exact(data_only(
           int_column(part + "_launches", "", "nodes that launch: each runs one kernel or more"))),
       [](P p) { return p.part.launches; }}};
}

using R = const AttentionRow&;

Fields<AttentionRow> identity_fields() {
  return {
      {as_key(col::batch("B")), [](R a) { return a.r.spec.run.shape.batch; }},
      {data_only(as_key(col::heads.titled("", "H"))), [](R a) { return a.r.spec.heads; }},
      {as_key(col::width("D, of each head")), [](R a) { return a.r.spec.width; }},
      {as_key(col::context("T")), [](R a) { return a.r.spec.run.shape.context; }},
      {as_key(col::causal), [](R a) { return a.r.spec.causal; }},
      {as_key(col::attention("its form: naive or flash")),
       [](R a) { return name_of(a.r.spec.run.attention); }},
      {as_key(col::saved("tensors of T² alive when backward starts, or lse, one row of numbers")),
       [](R a) { return saved_name(a.r.spec); }},
      {as_key(col::precision), [](R a) { return name_of(a.r.spec.run.precision); }},
      {as_key(col::device), [](R a) { return a.r.device; }},
      {col::status("ok or oom; what is predicted to exceed the limit is not begun"),
       [](R a) { return name_of(a.r.status); }},
      {col::steps.titled("n", "timed steps"),
       [](R a) { return static_cast<std::int64_t>(a.r.forward.samples_ms.size()); }},
  };
}

Fields<AttentionRow> result_fields() {
  return {
      {col::backward_over_forward,
       [](R a) { return when(a.has_speed, a.backward_ms / a.forward_ms); }},
      {as_exact(col::before_backward_bytes("live requested bytes when forward is done")),
       [](R a) { return when(a.ok, a.r.before_backward_bytes); }},
      {data_only(bytes_column("predicted_before_backward_bytes", "predicted",
                              "the same from the program alone")),
       [](R a) { return a.r.predicted_before_backward_bytes; }},
      {as_exact(col::peak_bytes("the most of the whole step")),
       [](R a) { return when(a.ok, a.r.peak_bytes); }},
      {col::predicted_peak_bytes("the same from the program alone"),
       [](R a) { return a.r.predicted_peak_bytes; }},
      {data_only(
           as_exact(col::saved_bytes.titled("", "tensors of T² among those before backward"))),
       [](R a) { return a.r.saved_bytes; }},
      {real_column("bytes_per_t2", "bytes / T²", "", 2, "before backward"),
       [](R a) {
         const auto s = static_cast<double>(a.r.spec.run.shape.context);
         return when(a.ok, static_cast<double>(a.r.before_backward_bytes) / (s * s));
       }},
      {data_only(col::roof_tflops), [](R a) { return positive_or_null(a.r.roof_tflops); }},
      {data_only(col::roof_others_cores), [](R a) { return or_null(a.r.roof_others_cores); }},
      {data_only(col::facts_before), [](R a) { return to_json(a.r.facts_before); }},
      {data_only(col::facts_after), [](R a) { return to_json(a.r.facts_after); }},
      {data_only(col::throttled),
       [](R a) { return or_null(throttled_between(a.r.facts_before, a.r.facts_after)); }},
      {data_only(col::detail("why the status is not ok")), [](R a) { return or_null(a.r.detail); }},
      {data_only(col::cell), [](R a) { return key_of(a.r.spec); }}};
}

Fields<AttentionRow> attention_row_fields() {
  Fields<AttentionRow> out = identity_fields();
  out.add(part_fields("forward"), [](R a) { return &a.forward; });
  out.add(part_fields("backward"), [](R a) { return &a.backward; });
  out.add(part_fields("whole"), [](R a) { return &a.whole; });
  out.add(result_fields());
  return out.add(host_columns(), [](R a) { return a.ok ? &a.r.host : nullptr; });
}

// The part as a row of `bench`, for the validity checker.
ResultRow as_row(const AttentionResult& r, const PartTimes& part, const char* mode,
                 const Json& environment) {
  Json row = Json::object();
  const std::string kind = fmt::format("attention {}", label_of(r.spec));
  row["size"] = kind;
  row["kind"] = kind;
  row["context"] = r.spec.run.shape.context;
  row["mode"] = mode;
  row["precision"] = name_of(r.spec.run.precision);
  row["executor"] = name_of(r.spec.run.executor);
  row["device"] = r.device;
  row["status"] = name_of(r.status);
  row["samples_ms"] = list_of(part.samples_ms);
  if (!r.visits.empty()) row["visit_samples"] = list_of(r.visits);
  row["warmup_ms"] = list_of(part.warmup_ms);
  const double median = median_of(part.samples_ms);
  if (r.status == Status::kOk && r.computes && median > 0) {
    row["median_ms"] = median;
    row["wall_ms"] = median;
    row["device_busy_ms"] = part.busy_ms;
    row["flops"] = part.flops;
    row["tflops"] = static_cast<double>(part.flops) / median * 1e-9;
    row["peak_bytes"] = r.peak_bytes;
    row["predicted_peak_bytes"] = r.predicted_peak_bytes;
    row["saved_bytes"] = r.saved_bytes;
    row["others_cores"] = or_null(others_cores(r.host.before, r.host.after));
  }
  row["launches"] = part.launches;
  if (r.roof_tflops > 0) row["roof_tflops"] = r.roof_tflops;
  if (r.roof_others_cores) row[kRoofCompany] = *r.roof_others_cores;
  if (const std::string why = throttled_between(r.facts_before, r.facts_after); !why.empty()) {
    row["throttled"] = why;
    row["facts_before"] = to_json(r.facts_before);
    row["facts_after"] = to_json(r.facts_after);
  }
  return ResultRow(std::move(row), environment);
}

}  // namespace

void show_heads(Table& table) {
  const std::size_t at = table.index_of("heads").value();
  table.columns[at].data_only = std::ranges::all_of(
      table.rows, [at](const std::vector<Json>& row) { return row[at] == Json(1); });
}

void empty_times_of(std::span<const AttentionResult> results, Table& table) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].computes) empty_times(table, i);
  }
}

void add_verdicts(Table& table, std::span<const AttentionResult> results, const Json& environment) {
  std::vector<ResultRow> rows;
  for (const AttentionResult& r : results) {
    rows.push_back(as_row(r, r.forward, "forward", environment));
    rows.push_back(as_row(r, r.backward, "backward", environment));
    rows.push_back(as_row(r, r.whole, "whole", environment));
  }
  const std::size_t column = table.index_of("verdict").value();
  TRACESTEP_CHECK(results.size() == table.rows.size(), "{} cells to judge in {}", results.size(),
                  table.name);
  const std::vector<std::vector<Verdict>> verdicts = judge_all(rows);
  constexpr std::size_t kParts = 3;
  for (std::size_t i = 0; i < results.size(); ++i) {
    std::vector<Verdict> of_cell;
    for (std::size_t part = kParts * i; part < kParts * (i + 1); ++part) {
      of_cell.insert(of_cell.end(), verdicts[part].begin(), verdicts[part].end());
    }
    table.rows[i][column] = when(results[i].status == Status::kOk, summary_of(of_cell));
  }
  for (std::string& note : validity_notes(rows, verdicts, "parts")) {
    table.notes.push_back(std::move(note));
  }
}

Table attention_table(std::span<const AttentionResult> results, const Json& environment) {
  const std::vector<AttentionRow> of_table(results.begin(), results.end());
  Table table =
      table_of("attention", "Attention alone: forward, backward, and the bytes in between",
               attention_row_fields(), of_table);
  empty_times_of(results, table);
  show_heads(table);
  table.columns.push_back(verdict_column());
  for (auto& row : table.rows) row.emplace_back();
  table.notes.push_back(
      "forward: from the call until the last kernel of y is done; backward: from the gradient of y "
      "until those of q, k and v are done, the forward pass not in it");
  table.notes.push_back(
      "whole: steps of their own that stop nowhere, with the loss's two small kernels");
  table.notes.push_back(
      "FLOPs are those that a form computes: the tiled one leaves out what a causal mask hides, "
      "and on a GPU multiplies float32 in parts of narrow formats. Compare forms by times, not by "
      "TFLOP/s");
  const bool computed = std::ranges::any_of(results, &AttentionResult::computes);
  if (computed) {
    add_verdicts(table, results, environment);
  } else {
    table.notes.push_back(
        "this device computes nothing, so there are no times; bytes are those of a run");
  }
  return table;
}

}  // namespace tracestep
