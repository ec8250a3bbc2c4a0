// The parts of an op as rows, judged like those of bench.
#include <algorithm>

#include "lab/measure/no_times.h"
#include "lab/measure/processes.h"
#include "lab/measure/validity.h"
#include "lab/op/op.h"
#include "lab/report/digits.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

struct OpRow {
  const OpResult& r;
  const char* name;
  const PartTimes& part;
  const PartWork& work;
  bool ok = r.status == Status::kOk;
  TimedSamples samples{part.samples_ms, r.visits, true};

  bool is_timed() const { return ok && r.computes && part.busy_ms > 0; }
  // Returns a count per second of the kernels' own time, in `unit`s; null if it was not timed.
  Json per_second(double count, double unit) const {
    return when(is_timed() && count > 0, count / part.busy_ms * 1e3 / unit);
  }
  bool has_roof() const { return is_timed() && work.roof_ms > 0; }
};

using R = const OpRow&;

Column ms_column(const char* name, const char* title, const char* text) {
  return real_column(name, title, "ms", 4, text);
}

Fields<OpRow> identity_fields() {
  Column copy = as_key(col::copy);
  copy.if_varies = true;
  return {{as_key(col::op), [](R a) { return a.r.spec.call; }},
          {as_key(col::shape("of the operands")), [](R a) { return a.r.spec.shape; }},
          {as_key(col::precision), [](R a) { return name_of(a.r.spec.run.precision); }},
          {data_only(as_key(col::ops("fused, or by its decomposition"))),
           [](R a) { return name_of(a.r.spec.run.ops); }},
          {as_key(text_column("cache", "", "cold: swept before each part")),
           [](R a) { return a.r.spec.is_cold ? "cold" : "warm"; }},
          {as_key(col::part("forward or gradient")), [](R a) { return a.name; }},
          {std::move(copy), [](R a) { return when(a.r.spec.copy > 1, a.r.spec.copy); }},
          {as_key(data_only(col::device)), [](R a) { return a.r.device; }},
          {col::status("ok or oom"), [](R a) { return name_of(a.r.status); }}};
}

Fields<OpRow> time_fields() {
  return {{col::warmup_ms("of each warm-up step"), [](R a) { return list_of(a.part.warmup_ms); }},
          {ms_column("device_busy_ms", "kernels",
                     "the kernels' own time, the median of separate recorded steps"),
           [](R a) { return when(a.is_timed(), a.part.busy_ms); }},
          {ms_column("roof_ms", "at best", "as bandwidth and arithmetic allow, kernel by kernel"),
           [](R a) { return when(a.has_roof(), a.work.roof_ms); }},
          {timed(real_column("of_roof_percent", "of the roof", "%", 1, "at best over kernels")),
           [](R a) { return when(a.has_roof(), percent_of(a.work.roof_ms, a.part.busy_ms)); }},
          {col::bound("what most of the time at best is for: bytes or FLOPs"),
           [](R a) {
             const bool is_by_bytes = 2 * a.work.by_bytes_ms >= a.work.roof_ms;
             return when(a.has_roof(), is_by_bytes ? "bytes" : "FLOPs");
           }},
          {timed(real_column("gb_s", "moved", "GB/s", kTwoDigits, "bytes over the kernels' time")),
           [](R a) { return a.per_second(a.work.bytes, 1e9); }},
          {timed(real_column("gflop_s", "computed", "GFLOP/s", kTwoDigits, "FLOPs over it")),
           [](R a) { return a.per_second(a.work.flops, 1e9); }}};
}

Fields<OpRow> count_fields() {
  return {
      {as_exact(col::bytes("read and written, each distinct element once")),
       [](R a) { return static_cast<std::int64_t>(a.work.bytes); }},
      {as_exact(col::flops("multiply and add count one each")),
       [](R a) { return static_cast<std::int64_t>(a.work.flops); }},
      {as_exact(col::launches("each runs one kernel or more")),
       [](R a) { return a.part.launches; }},
      {data_only(col::predicted_peak_bytes.titled("", "of the program, swept arrays included")),
       [](R a) { return a.r.predicted_peak_bytes; }},
      {data_only(col::peak_bytes.titled("", "the same, measured")),
       [](R a) { return when(a.ok, a.r.peak_bytes); }},
      {data_only(col::throttled),
       [](R a) { return or_null(throttled_between(a.r.facts_before, a.r.facts_after)); }},
      {data_only(col::detail("why the status is not ok")), [](R a) { return or_null(a.r.detail); }},
      {data_only(col::cell), [](R a) { return key_of(a.r.spec); }}};
}

Fields<OpRow> op_fields() {
  Fields<OpRow> out = identity_fields();
  out.add(sample_columns(), [](R a) { return &a.samples; });
  out.add(time_fields()).add(count_fields());
  out.add(host_columns(), [](R a) { return a.ok ? &a.r.host : nullptr; });
  return out.add(verdict_column(), [](R) { return Json(); });
}

// Returns the rows with the cells that the checker reads; different calls are not compared.
std::vector<ResultRow> judged_rows(const Table& table, std::span<const OpRow> rows,
                                   const Json& environment) {
  std::vector<ResultRow> out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Json cells = Json::object();
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      const std::string& name = table.columns[c].name;
      const bool is_other = name == "flops" || name.ends_with("peak_bytes") || name == "cell";
      if (!is_other && !table.rows[i][c].is_null()) cells[name] = table.rows[i][c];
    }
    cells["size"] = cells["kind"] = fmt::format("{} {}", label_of(rows[i].r.spec), rows[i].name);
    if (rows[i].is_timed()) cells["wall_ms"] = rows[i].samples.summary.median;
    out.emplace_back(std::move(cells), environment);
  }
  return out;
}

}  // namespace

Table op_table(std::span<const OpResult> results, std::span<const OpWork> work,
               const Json& environment) {
  std::vector<OpRow> rows;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const OpResult& r = results[i];
    rows.push_back({r, "forward", r.forward, work[i].forward});
    if (r.backward.launches > 0) rows.push_back({r, "gradient", r.backward, work[i].backward});
  }
  Table table = table_of("ops", "Ops by themselves", op_fields(), rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].r.computes) empty_times(table, i);
  }
  add_verdicts(table, judged_rows(table, rows, environment));
  table.notes.push_back(
      "cold: before each part the caches are swept; warm: what the step before left in them is "
      "there, so a warm part of few bytes can be above the roof, which is that of memory");
  return table;
}

}  // namespace tracestep
