// The tables of one profiled step by kernel: nsys's summary, the matrix of components, the kinds.
#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/origins.h"
#include "base/units.h"
#include "lab/measure/recorded_times.h"
#include "lab/measure/statistics.h"
#include "lab/profile/tables.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

std::int64_t rounded(double value) {
  return std::llround(value);
}

// A column of work done, with the function that reads its cell from a WorkSums.
using WorkField = Field<WorkSums>;

WorkField launches_field() {
  return {as_part("launches", real_column("launches", "launches", "", 0, "in one step")),
          &WorkSums::launches};
}

Fields<WorkSums> roof_fields() {
  using S = const WorkSums&;
  return {
      {col::gflops("counted operations over time"),
       [](S s) { return when(s.flops > 0, s.gflops()); }},
      {col::gb_per_s("counted bytes over time"), [](S s) { return when(s.bytes > 0, s.gb_s()); }},
      {col::bound("the roofline's limit: bytes or FLOPs"), [](S s) { return or_null(s.bound()); }},
      {timed(col::roof_percent("least time by the measured ceilings over time")),
       [](S s) { return when(s.roof_ms > 0, percent_of(s.roof_ms, s.ms)); }}};
}

// Adds a note on why rows may be above their roof, for roofs by bytes and by FLOPs, if one is. Only
// fused kernels leave out what a mask hides: primitive ones read and write every score.
void note_roofs(Granularity ops, Table& table) {
  const std::size_t roof = table.index_of("roof_percent").value();
  const std::size_t bound = table.index_of("bound").value();
  const auto is_above = [roof, bound](std::string_view limit) {
    return [=](const std::vector<Json>& row) {
      return row[roof].is_number() && row[roof].as_double() > 100.0 && row[bound] == Json(limit);
    };
  };
  if (std::ranges::any_of(table.rows, is_above("bytes"))) {
    table.notes.push_back(fmt::format(
        "above 100 % of roof, for bytes: the data came from a cache{}, or the ceiling was measured "
        "too low",
        ops == Granularity::kFused ? ", a mask hides some" : ""));
  }
  if (std::ranges::any_of(table.rows, is_above("FLOPs"))) {
    table.notes.push_back(fmt::format(
        "of roof, for FLOPs: the ceiling is the highest rate of arithmetic that was measured; "
        "above 100 % it was measured too low{}",
        ops == Granularity::kFused ? ", or a kernel left out what a mask hides" : ""));
  }
}

// Notes how long delayed launches held up the recorded steps, if any did. `where`: whether the
// table counts that time.
void note_interruptions(const StepWork& work, std::string_view where, Table& table) {
  if (work.interrupted_ms <= 0) return;
  table.notes.push_back(fmt::format(
      "single launches were held up for {} of each recorded step, which is {}: a launch over "
      "1.5 times the median of the same launch in all recorded steps counts as that median",
      format_duration_ms(work.interrupted_ms), where));
}

// A kernel's name, its launches' durations in ns, and the sums of its rows in StepWork::rows.
struct KernelTimes {
  std::string name;
  std::vector<double> durations;
  double total_ns = 0;
  std::string kernel_class;
  WorkSums sums;
};

std::vector<KernelTimes> kernels_of(const ProfiledCell& cell, const ComponentFilter& filter) {
  std::map<std::string, KernelTimes> kernels;
  const Profile& p = cell.profile;
  for (const ProfiledLaunch& l : p.launches) {
    bool is_in = filter.is_all();
    if (!is_in && l.node >= 0) {
      const auto& origins = p.program.node(l.node).origins;
      is_in = std::ranges::any_of(
          origins, [&](const Origin& o) { return filter.has(component_of(o.path)); });
    }
    if (!is_in) continue;
    KernelTimes& k = kernels[p.names[static_cast<std::size_t>(l.name)]];
    k.durations.push_back(static_cast<double>(l.duration_ns()));
    k.total_ns += k.durations.back();
  }
  for (const Work& w : cell.work.rows) {
    const auto found = kernels.find(w.kernel);
    if (found == kernels.end() || !filter.has(w.component)) continue;
    found->second.sums += w.sums;
    const std::string_view name = w.has_node ? name_of(w.kernel_class) : kOutside;
    std::string& classes = found->second.kernel_class;
    if (classes.find(name) == std::string::npos) {
      classes += (classes.empty() ? "" : ", ") + std::string(name);
    }
  }
  std::vector<KernelTimes> out;
  for (auto& [name, k] : kernels) {
    k.name = name;
    out.push_back(std::move(k));
  }
  std::ranges::stable_sort(out, std::greater{}, &KernelTimes::total_ns);
  return out;
}

}  // namespace

namespace {

struct KernelRow {
  const KernelTimes& k;
  double steps, busy_ns;
  Summary ns;
};

Fields<KernelRow> kernel_fields() {
  using R = const KernelRow&;
  const auto ns = [](const char* name, double Summary::*member) {
    return Field<KernelRow>{real_column(name, name, "", 1),
                            [member](R r) { return finite_or_null(r.ns.*member); }};
  };
  Fields<KernelRow> out = {
      {real_column("Time (%)", "Time (%)", "", 1, "of the kernels' total time"),
       [](R r) { return percent_of(r.k.total_ns, r.busy_ns); }},
      {int_column("Total Time (ns)"), [](R r) { return rounded(r.k.total_ns); }},
      {int_column("Instances"), [](R r) { return r.ns.count; }},
      ns("Avg (ns)", &Summary::mean),
      ns("Med (ns)", &Summary::median),
      {int_column("Min (ns)"), [](R r) { return rounded(r.ns.min); }},
      {int_column("Max (ns)"), [](R r) { return rounded(r.ns.max); }},
      ns("StdDev (ns)", &Summary::sample_std),
      {as_key(text_column("Name")), [](R r) { return r.k.name; }},
      {as_key(col::class_("of the nodes that asked for it")), [](R r) { return r.k.kernel_class; }},
      {as_part("launches", real_column("per_step", "per step", "", 0, "instances in one step")),
       [](R r) { return static_cast<double>(r.ns.count) / r.steps; }}};
  return out.add(roof_fields(), [](R r) { return &r.k.sums; });
}

// A row of matrix_table(): a Work, a sum of rows (`work` is null), or a time (`sums` is null too).
struct MatrixRow {
  std::string name;
  const Work* work;
  const WorkSums* sums;
  std::optional<double> ms;        // nullopt: not known
  std::optional<double> whole_ms;  // the base of its share; nullopt: it is no part
  std::optional<double> recorded_ms = {};
};

using M = const MatrixRow&;

// Makes a field that is empty in sums of rows and for kernels that belong to no node.
template <class Get>
Field<MatrixRow> node_field(Column column, Get get) {
  return {std::move(column), [get](M m) {
            return m.work != nullptr && m.work->has_node ? Json(get(*m.work)) : Json();
          }};
}

Fields<MatrixRow> matrix_fields() {
  Fields<MatrixRow> out = {
      {as_key(col::component), &MatrixRow::name},
      node_field(as_key(col::phase), [](const Work& w) { return w.phase; }),
      node_field(as_key(col::op), [](const Work& w) { return w.op; }),
      {as_key(col::kernel), [](M m) { return m.work == nullptr ? Json() : Json(m.work->kernel); }},
      node_field(col::class_("from the op's record"),
                 [](const Work& w) { return name_of(w.kernel_class); })};
  const auto sums = [](M m) { return m.sums; };
  out.add(Fields<WorkSums>{launches_field()}, sums);
  out.add(as_part("ms", with_digits(4, col::ms)), [](M m) { return or_null(m.ms); });
  out.add(timed(col::share_percent("of the span, or of the kernels where those took longer")),
          [](M m) { return m.ms && m.whole_ms ? Json(percent_of(*m.ms, *m.whole_ms)) : Json(); });
  out.add(Fields<WorkSums>{{real_column("gap_ms", "gap before", "ms", 4,
                                        "when recorded: from the end of the kernel before"),
                            &WorkSums::gap_ms},
                           {as_part("flops", data_only(real_column("flops", "FLOPs", "", 0))),
                            &WorkSums::flops},
                           {as_part("moved_bytes", data_only(real_column("bytes", "bytes", "", 0))),
                            &WorkSums::bytes}},
          sums);
  out.add(roof_fields(), sums);
  out.add(col::recorded_ms("gaps and span of the recorded steps, with what recording adds"),
          [](M m) { return or_null(m.recorded_ms); });
  return out.add(
      data_only(bool_column("is_modelled", "",
                            "a kernel for several nodes or origins, shared out by bytes moved")),
      [](M m) { return m.work != nullptr && m.work->is_modelled; });
}

}  // namespace

Table kernel_table(const ProfiledCell& cell, const ComponentFilter& filter) {
  const auto steps = static_cast<double>(cell.profile.steps.size());
  const std::vector<KernelTimes> kernels = kernels_of(cell, filter);
  const double all_ns = (cell.work.kernels_ms + cell.work.interrupted_ms) * steps * 1e6;
  std::vector<KernelRow> rows;
  for (const KernelTimes& k : kernels) {
    rows.push_back({k, steps, all_ns, summarize(k.durations)});
  }
  Table table = table_of("kernels", "Kernels of all profiled steps", kernel_fields(), rows);
  table.notes.push_back(
      fmt::format("instances count {} profiled steps; divide by it, or read the column per step",
                  cell.profile.steps.size()));
  note_interruptions(cell.work, "counted here, and in no other table", table);
  note_roofs(cell.profile.spec.step.ops, table);
  return table;
}

Table matrix_table(const ProfiledCell& cell, const ComponentFilter& filter) {
  const StepWork& work = cell.work;
  const double span_ms = cell.profile.plain.span_ms;
  const bool has_span = plain_gaps_ms(cell).has_value();
  const double whole_ms = has_span ? span_ms : work.busy_ms;
  std::vector<MatrixRow> rows;
  WorkSums left_out, all;
  for (const Work& w : work.rows) {
    all += w.sums;
    if (filter.has(w.component)) {
      rows.push_back({w.component, &w, &w.sums, w.sums.ms, whole_ms});
    } else {
      left_out += w.sums;
    }
  }
  const auto add_sum = [&](const char* name, const WorkSums* sums, std::optional<double> ms,
                           std::optional<double> recorded_ms = {}) {
    rows.push_back({name, nullptr, sums, ms, whole_ms, recorded_ms});
  };
  if (left_out.launches > 0) add_sum("components not asked for", &left_out, left_out.ms);
  add_sum("gaps", nullptr, plain_gaps_ms(cell), work.gaps_ms);
  if (work.overlap_ms > 0) add_sum("overlap", nullptr, -work.overlap_ms);
  all.ms = span_ms;  // the rates of the whole step are over its time, gaps included
  add_sum("total", &all, span_ms, work.span_ms);
  if (!has_span) rows.back().whole_ms.reset();
  Table table =
      table_of("matrix", "One step by component, phase and kernel", matrix_fields(), rows);
  table.notes.push_back(
      "classes, FLOPs and bytes are those of the program's ops, not guesses "
      "from names of kernels; every element counts as read or written once");
  table.notes.push_back(fmt::format(
      "kernels' times are of recorded steps (by {}), total is the span of plain ones, "
      "and gaps are what is left of it: {}",
      cell.profile.source,
      has_span ? left_of_span(cell).parts().words() : "nothing here, since kernels took longer"));
  note_interruptions(cell.work, "left out", table);
  note_roofs(cell.profile.spec.step.ops, table);
  return table;
}

namespace {

struct Kind {
  std::string op;
  KernelClass kernel_class = KernelClass::kElementwise;
  std::map<std::string, double> ms;  // by phase
  WorkSums sums;
};

// Returns the columns of kind_table(). `recomputes`: whether some nodes run again in backward.
Fields<Kind> kind_fields(double kernels_ms, bool recomputes) {
  using K = const Kind&;
  const auto ms = [](const char* name, const char* title, Phase phase) {
    return Field<Kind>{real_column(name, title, "ms", 4), [phase](K k) {
                         const auto found = k.ms.find(std::string(name_of(phase)));
                         return found == k.ms.end() ? Json() : Json(found->second);
                       }};
  };
  const auto sums = [](K k) { return &k.sums; };
  Fields<Kind> out = {{col::op("what it computes"), &Kind::op},
                      {col::class_, [](K k) { return name_of(k.kernel_class); }}};
  out.add(Fields<WorkSums>{launches_field()}, sums);
  Field<Kind> again = ms("recompute_ms", "recompute", Phase::kRecompute);
  again.column.data_only = !recomputes;
  out.add(Fields<Kind>{ms("forward_ms", "forward", Phase::kForward), std::move(again),
                       ms("backward_ms", "backward", Phase::kBackward),
                       ms("optimizer_ms", "optimizer", Phase::kOptimizer)});
  out.add(timed(col::share_percent("of the time of all kernels")),
          [kernels_ms](K k) { return percent_of(k.sums.ms, kernels_ms); });
  return out.add(roof_fields(), sums);
}

}  // namespace

Table kind_table(const ProfiledCell& cell, const ComponentFilter& filter) {
  std::map<std::string, Kind> by_op;
  for (const Work& w : cell.work.rows) {
    if (is_product(w) || !w.has_node || !filter.has(w.component)) continue;
    Kind& kind = by_op[w.op];
    kind.op = w.op;
    kind.kernel_class = w.kernel_class;
    kind.ms[w.phase] += w.sums.ms;
    kind.sums += w.sums;
  }
  std::vector<Kind> kinds;
  kinds.reserve(by_op.size());
  for (auto& [op, kind] : by_op) kinds.push_back(std::move(kind));
  std::ranges::stable_sort(kinds, std::greater{}, [](const Kind& k) { return k.sums.ms; });
  const bool recomputes = std::ranges::any_of(
      kinds, [](const Kind& k) { return k.ms.contains(std::string(name_of(Phase::kRecompute))); });
  Table table = table_of("kinds", "Kernels that multiply no matrices, by kind",
                         kind_fields(cell.work.kernels_ms, recomputes), kinds);
  note_roofs(cell.profile.spec.step.ops, table);
  return table;
}

Table ceiling_table(const Ceilings& ceilings) {
  Table table{.name = "ceilings", .title = "Measured ceilings"};
  constexpr const char* kArithmetic = "arithmetic outside matrix products";
  table.columns = {text_column("ceiling"), real_column("value", "", "", 1), col::unit,
                   text_column("same_as", "same as", "one measurement stands for both"),
                   data_only(col::dtype("of the operands of matrix products"))};
  if (!ceilings.known()) return table;
  table.add_row({"bandwidth", ceilings.bandwidth_gb_s, "GB/s", Json(), Json()});
  table.add_row({kArithmetic, ceilings.arithmetic_gflops, "GFLOP/s", Json(), Json()});
  for (const auto& [dtype, gflops] : ceilings.products_gflops) {
    table.add_row({fmt::format("matrix products, {}", name_of(dtype)), gflops, "GFLOP/s",
                   when(gflops == ceilings.arithmetic_gflops, kArithmetic), name_of(dtype)});
  }
  if (!ceilings.how.empty()) table.notes.push_back(ceilings.how);
  return table;
}

}  // namespace tracestep
