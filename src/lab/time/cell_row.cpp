// A cell as a row of `bench`.
#include <numeric>

#include "lab/measure/no_times.h"
#include "lab/measure/processes.h"
#include "lab/measure/row_facts.h"
#include "lab/measure/run_columns.h"
#include "lab/report/digits.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "lab/time/cell.h"

namespace tracestep {
namespace {

// A result of `bench`, with the values that several of its columns share.
struct CellRow {
  const CellResult& r;
  RunSpec there;  // the run, with the device's own name
  bool ok;
  TimedSamples samples;

  explicit CellRow(const CellResult& result)
      : r(result),
        there(result.spec.step),
        ok(result.status == Status::kOk),
        samples(timed_samples(result)) {
    there.place.device = result.device;
  }

  double seconds() const { return samples.summary.median * 1e-3; }
  bool has_speed() const { return ok && r.computes && seconds() > 0.0; }
};

using R = const CellRow&;

// Returns a getter of a member of the result, which is empty in rows without numbers.
template <class T>
auto when_ok(T CellResult::*member) {
  return [member](R c) { return c.ok ? Json(c.r.*member) : Json(); };
}
template <class T>
auto when_ok(std::optional<T> CellResult::*member) {
  return [member](R c) { return c.ok ? or_null(c.r.*member) : Json(); };
}

double seconds_in(const std::vector<double>& ms) {
  return std::accumulate(ms.begin(), ms.end(), 0.0) * 1e-3;
}

Json list_or_null(const std::vector<double>& ms) {
  return when(!ms.empty(), list_of(ms));
}

Column ms_column(std::string name, std::string title, std::string text) {
  return real_column(std::move(name), std::move(title), "ms", 3, std::move(text));
}

Fields<CellRow> identity_fields() {
  Fields<CellRow> out{};
  out.add(run_columns(), [](R c) { return &c.there; });
  Column copy = as_key(col::copy);
  copy.if_varies = true;
  out.add(std::move(copy), [](R c) { return when(c.r.spec.copy > 1, c.r.spec.copy); });
  return out.add({{col::status("ok, oom, or spill: the time is that of moving memory"),
                   [](R c) { return name_of(c.r.status); }},
                  {data_only(col::parameters("elements")), [](R c) { return c.r.parameters; }}});
}

Fields<CellRow> sample_fields() {
  Fields<CellRow> out{};
  out.add(sample_columns(), [](R c) { return &c.samples; });
  return out.add(
      {{data_only(text_column("stopped_by", "",
                              "why sampling ended: steps (as many as asked for), noise (its "
                              "limit is met), max-steps or max-seconds (it is not)")),
        [](R c) { return c.ok ? or_null(c.r.stopped_by) : Json(); }},
       {col::warmup_ms("wall time of each warm-up step"),
        [](R c) { return list_of(c.r.warmup_ms); }},
       {data_only(real_column("timed_s", "timed", "s", 4, "all samples added up")),
        [](R c) { return when(c.ok, seconds_in(c.r.samples_ms)); }},
       {data_only(real_column("warmup_s", "warm-up", "s", 4, "all warm-up steps added up")),
        [](R c) { return when(c.ok, seconds_in(c.r.warmup_ms)); }},
       {reals_column("forward_samples_ms", "forward alone, in the steps that stop between parts"),
        [](R c) { return list_or_null(c.r.parts.forward_ms); }},
       {reals_column("backward_samples_ms", "backward alone, likewise"),
        [](R c) { return list_or_null(c.r.parts.backward_ms); }},
       {reals_column("optimizer_samples_ms", "the optimizer alone, likewise"),
        [](R c) { return list_or_null(c.r.parts.optimizer_ms); }},
       {ms_column("wall_ms", "wall", "median time from call to finished"),
        when_ok(&CellResult::wall_ms)},
       {ms_column("issue_ms", "issue",
                  "host time of the call; on a CPU, of the wall outside kernels"),
        when_ok(&CellResult::issue_ms)},
       {ms_column("device_span_ms", "span", "first kernel start to last kernel end"),
        when_ok(&CellResult::device_span_ms)},
       {ms_column("device_busy_ms", "busy, recorded",
                  "sum of kernel times, from separate recorded steps: events around each kernel "
                  "may add to it, so it can exceed the span"),
        when_ok(&CellResult::device_busy_ms)},
       {ms_column("communication_ms", "collectives",
                  "kernels of collectives in the recorded steps, each call by itself, the wait for "
                  "other ranks included; empty for one rank"),
        [](R c) { return c.ok ? or_null(c.r.communication_ms) : Json(); }},
       {ms_column("exposed_ms", "exposed",
                  "span less the recorded kernels that are no collectives: what sums and gathers "
                  "add to the step; empty likewise"),
        [](R c) { return c.ok ? or_null(c.r.exposed_ms) : Json(); }},
       {reals_column("recorded_busy_ms", "the same of each recorded step"),
        [](R c) { return list_of(c.r.recorded_busy_ms); }},
       {data_only(ms_column("interrupted_ms", "",
                            "what single recorded launches were held up for; not in busy")),
        when_ok(&CellResult::interrupted_ms)},
       {data_only(bool_column(
            "graph", "",
            "the timed steps replayed one graph; false: they were issued launch by launch, as "
            "steps that stop between parts and recorded steps always are")),
        when_ok(&CellResult::captured)},
       {data_only(col::recorded_by("the instrument of the recorded steps")),
        [](R c) { return c.ok ? or_null(c.r.recorded_by) : Json(); }}});
}

Fields<CellRow> byte_fields() {
  return {{as_exact(col::peak_bytes("requested bytes at the peak, by the allocator")),
           when_ok(&CellResult::peak_bytes)},
          {col::predicted_peak_bytes.titled("predicted", "the same from the program alone"),
           [](R c) { return c.r.predicted_peak_bytes; }},
          {data_only(as_exact(int_column(
               "ranks_as_predicted", "",
               "ranks with the predicted peak that received the predicted bytes in each recorded "
               "step; empty where ranks are no processes"))),
           [](R c) { return c.ok ? or_null(c.r.ranks_as_predicted) : Json(); }},
          {data_only(col::host_bytes.titled(
               "", "what the step keeps in the host's memory, by its allocator")),
           when_ok(&CellResult::host_bytes)},
          {data_only(col::arena_bytes.titled(
               "", "of the peak, planned; empty: buffers come from the allocator")),
           when_ok(&CellResult::arena_bytes)},
          {data_only(bytes_column("arena_lower_bound_bytes", "",
                                  "the largest sum of bytes that a step needs at once")),
           when_ok(&CellResult::arena_lower_bound_bytes)},
          {data_only(real_column("allocations_per_step", "", "", 1,
                                 "calls of the device's allocator in the timed steps")),
           when_ok(&CellResult::allocations_per_step)},
          {bytes_column("untracked_bytes", "untracked",
                        "physical memory outside the allocator's segments, since the start"),
           when_ok(&CellResult::untracked_bytes)},
          {data_only(col::outside_bytes.titled(
               "",
               "the same in all: the program's code and libraries; on a GPU the driver's count of "
               "used memory, other processes included, less the segments")),
           when_ok(&CellResult::outside_bytes)},
          {data_only(as_exact(
               col::saved_bytes.titled("", "forward values kept for backward, by the program"))),
           [](R c) { return c.r.saved_bytes; }},
          {data_only(
               int_column("major_faults", "", "pages that came from disk during the timed steps")),
           when_ok(&CellResult::major_faults)}};
}

Fields<CellRow> speed_fields() {
  return {
      {data_only(as_exact(col::flops.titled("", "of matrix products"))),
       [](R c) { return when(c.r.flops > 0, c.r.flops); }},
      {real_column("tflops", "TFLOP/s", "", 3,
                   "flops over the median; empty where nothing is computed"),
       [](R c) {
         return when(c.has_speed(), static_cast<double>(c.r.flops) / c.seconds() * 1e-12);
       }},
      {data_only(
           col::roof_tflops("what the device reaches at best, measured before the first row")),
       [](R c) { return positive_or_null(c.r.roof_tflops); }},
      {data_only(col::roof_others_cores("CPU time that others took while the roof was measured")),
       [](R c) { return or_null(c.r.roof_others_cores); }},
      {col::tokens_per_s("the tokens of a step over the median; empty likewise"),
       [](R c) {
         const auto tokens = static_cast<double>(tokens_of_step(c.there));
         return when(c.has_speed(), tokens / c.seconds());
       }},
      {as_exact(col::launches("nodes per step that launch: each runs one kernel or more")),
       [](R c) { return when(c.r.launches > 0, c.r.launches); }},
      {data_only(
           col::kernels("kernels, copies and fills of the graph that the timed steps replayed; "
                        "empty where they were issued launch by launch, and not counted")),
       [](R c) { return c.ok ? or_null(c.r.kernels) : Json(); }},
      {data_only(real_column("energy_j", "energy", "J", kTwoDigits,
                             "of the whole device, for one timed step, by its own counter, which "
                             "is coarse; empty where it has none, below half a second, or where "
                             "it says more than the device's power limit allows")),
       [](R c) { return c.ok ? or_null(energy_per_step_j(c.r)) : Json(); }},
      {data_only(real_column("compile_ms", "", "ms", 1,
                             "until the first step can run: program, passes, kernels, buffers")),
       when_ok(&CellResult::compile_ms)},
      {data_only(
           real_column("instrumented_wall_ms", "", "", 3, "median wall of the recorded steps")),
       when_ok(&CellResult::instrumented_wall_ms)}};
}

Fields<CellRow> state_fields() {
  Fields<CellRow> out = {
      {data_only(bool_column("profiled", "", "a profiler listened to the timed steps")),
       when_ok(&CellResult::profiled)},
      {data_only(text_column("choices", "", "how kernels were chosen where there is a choice")),
       [](R c) { return or_null(c.r.choices); }},
      {data_only(col::throttled("what slowed the device down during the timed steps")),
       [](R c) { return or_null(throttled_between(c.r.facts_before, c.r.facts_after)); }},
      {data_only(
           col::facts_before("clocks, power and temperature of the device before the timed steps")),
       [](R c) { return to_json(c.r.facts_before); }},
      {data_only(col::facts_after("the same after them")),
       [](R c) { return to_json(c.r.facts_after); }},
      {data_only(col::detail("why the status is not ok")),
       [](R c) { return or_null(c.r.detail); }}};
  return out.add(host_columns(), [](R c) { return c.ok ? &c.r.host : nullptr; });
}

const Fields<CellRow>& fields() {
  static const Fields<CellRow> all = [] {
    Fields<CellRow> out = identity_fields();
    out.add(sample_fields()).add(byte_fields()).add(speed_fields()).add(state_fields());
    return out;
  }();
  return all;
}

}  // namespace

std::vector<Column> cell_columns() {
  return fields().columns();
}

std::vector<Json> cell_row(const CellResult& result) {
  std::vector<Json> row = fields().row(CellRow(result));
  if (result.computes) return row;
  static const std::vector<Column> columns = cell_columns();
  return without_times(columns, std::move(row));
}

}  // namespace tracestep
