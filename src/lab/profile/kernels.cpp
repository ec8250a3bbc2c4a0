// The tables of one profiled step by kernel: nsys's summary, the matrix of components, the kinds.
#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/component.h"
#include "lab/measure/statistics.h"
#include "lab/profile/tables.h"
#include "lab/report/columns.h"

namespace tracestep {
namespace {

double percent(double part, double whole) {
  return whole > 0.0 ? 100.0 * part / whole : 0.0;
}

Json when(bool condition, Json value) {
  return condition ? std::move(value) : Json();
}

std::int64_t rounded(double value) {
  return std::llround(value);
}

// Which limit of the roofline the work meets first; empty where it counts neither.
Json bound_of(const WorkSums& s) {
  if (s.roof_ms <= 0) return Json();
  return s.roof_by_bytes_ms > 0.5 * s.roof_ms ? "bytes" : "FLOPs";
}

std::vector<Column> roof_columns() {
  return {real_column("gflops", "GFLOP/s", "", 1, "counted operations over time"),
          real_column("gb_per_s", "GB/s", "", 1, "counted bytes over time"),
          text_column("bound", "", "the roofline's limit: bytes or FLOPs"),
          real_column("roof_percent", "of roof", "%", 1,
                      "least time by the measured ceilings over time; above 100: caches")};
}

void add_roof(std::vector<Json>& row, const WorkSums& s) {
  row.push_back(when(s.flops > 0, s.gflops()));
  row.push_back(when(s.bytes > 0, s.gb_s()));
  row.push_back(bound_of(s));
  row.push_back(when(s.roof_ms > 0, percent(s.roof_ms, s.ms)));
}

void add_empty(std::vector<Json>& row, std::size_t count) {
  row.insert(row.end(), count, Json());
}

// Durations of every kernel of that name, in ns, and its rows of the matrix added up.
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

Table kernel_table(const ProfiledCell& cell, const ComponentFilter& filter) {
  Table table{.name = "kernels", .title = "Kernels of all profiled steps"};
  const auto ns = [](const char* name) { return real_column(name, name, "", 1); };
  table.columns = {real_column("Time (%)", "Time (%)", "", 1, "of the kernels' total time"),
                   int_column("Total Time (ns)"),
                   int_column("Instances"),
                   ns("Avg (ns)"),
                   ns("Med (ns)"),
                   int_column("Min (ns)"),
                   int_column("Max (ns)"),
                   ns("StdDev (ns)"),
                   text_column("Name"),
                   text_column("class", "", "of the nodes that asked for it"),
                   real_column("per_step", "per step", "", 0, "instances in one step")};
  for (Column& c : roof_columns()) table.columns.push_back(std::move(c));
  const auto steps = static_cast<double>(cell.profile.steps.size());
  const double busy_ns = cell.work.busy_ms * steps * 1e6;
  for (const KernelTimes& k : kernels_of(cell, filter)) {
    const Summary s = summarize(k.durations);
    std::vector<Json> row{percent(k.total_ns, busy_ns),
                          rounded(k.total_ns),
                          s.count,
                          s.mean,
                          s.median,
                          rounded(s.min),
                          rounded(s.max),
                          s.sample_std,
                          k.name,
                          k.kernel_class,
                          static_cast<double>(s.count) / steps};
    add_roof(row, k.sums);
    table.add_row(std::move(row));
  }
  table.notes.push_back(
      fmt::format("instances count {} profiled steps; divide by it, or read the column per step",
                  cell.profile.steps.size()));
  return table;
}

Table matrix_table(const ProfiledCell& cell, const ComponentFilter& filter) {
  const StepWork& work = cell.work;
  Table table{.name = "matrix", .title = "One step by component, phase and kernel"};
  table.columns = {text_column("component", "", "model path, layers added up"),
                   text_column("phase"),
                   text_column("op"),
                   text_column("kernel"),
                   text_column("class", "", "from the op's record"),
                   real_column("launches", "launches", "", 0, "in one step"),
                   real_column("ms", "time", "ms", 4),
                   real_column("share_percent", "share", "%", 2, "of the span"),
                   real_column("gap_ms", "gap before", "ms", 4,
                               "between the end of the kernel before and the start"),
                   data_only(real_column("flops", "FLOPs", "", 0)),
                   data_only(real_column("bytes", "bytes", "", 0))};
  for (Column& c : roof_columns()) table.columns.push_back(std::move(c));
  table.columns.push_back(data_only({.name = "is_modelled",
                                     .kind = ColumnKind::kBool,
                                     .description = "a node of several origins, shared evenly"}));
  WorkSums left_out, all;
  for (const Work& w : work.rows) {
    all += w.sums;
    if (!filter.has(w.component)) {
      left_out += w.sums;
      continue;
    }
    std::vector<Json> row{w.component,
                          when(w.has_node, w.phase),
                          when(w.has_node, w.op),
                          w.kernel,
                          when(w.has_node, name_of(w.kernel_class)),
                          w.sums.launches,
                          w.sums.ms,
                          percent(w.sums.ms, work.span_ms),
                          w.sums.gap_ms,
                          w.sums.flops,
                          w.sums.bytes};
    add_roof(row, w.sums);
    row.push_back(w.is_modelled);
    table.add_row(std::move(row));
  }
  const auto add_sum = [&](const char* name, const WorkSums& s, double ms, bool is_work) {
    std::vector<Json> row{name, Json(), Json(), Json(), Json()};
    row.push_back(when(is_work, s.launches));
    row.push_back(ms);
    row.push_back(percent(ms, work.span_ms));
    row.push_back(when(is_work, s.gap_ms));
    row.push_back(when(is_work, s.flops));
    row.push_back(when(is_work, s.bytes));
    if (is_work) {
      add_roof(row, s);
    } else {
      add_empty(row, 4);
    }
    row.push_back(false);
    table.add_row(std::move(row));
  };
  if (left_out.launches > 0) add_sum("components not asked for", left_out, left_out.ms, true);
  add_sum("gaps", {}, work.gaps_ms, false);
  if (work.overlap_ms > 0) add_sum("overlap", {}, -work.overlap_ms, false);
  add_sum("total", all, work.span_ms, true);
  table.notes.push_back(
      "classes, FLOPs and bytes are those of the program's ops, not guesses "
      "from names of kernels; every element counts as read or written once");
  return table;
}

Table kind_table(const ProfiledCell& cell, const ComponentFilter& filter) {
  struct Kind {
    std::string op;
    KernelClass kernel_class = KernelClass::kElementwise;
    std::map<std::string, double> ms;  // by phase
    WorkSums sums;
  };
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
  Table table{.name = "kinds", .title = "Kernels that multiply no matrices, by kind"};
  table.columns = {text_column("op", "", "what it computes"),
                   text_column("class"),
                   real_column("launches", "launches", "", 0, "in one step"),
                   real_column("forward_ms", "forward", "ms", 4),
                   real_column("backward_ms", "backward", "ms", 4),
                   real_column("optimizer_ms", "optimizer", "ms", 4),
                   real_column("share_percent", "share", "%", 2, "of the time of all kernels")};
  for (Column& c : roof_columns()) table.columns.push_back(std::move(c));
  for (const Kind& k : kinds) {
    const auto ms = [&](Phase phase) {
      const auto found = k.ms.find(std::string(name_of(phase)));
      return found == k.ms.end() ? Json() : Json(found->second);
    };
    std::vector<Json> row{k.op,
                          name_of(k.kernel_class),
                          k.sums.launches,
                          ms(Phase::kForward),
                          ms(Phase::kBackward),
                          ms(Phase::kOptimizer),
                          percent(k.sums.ms, cell.work.busy_ms)};
    add_roof(row, k.sums);
    table.add_row(std::move(row));
  }
  return table;
}

Table ceiling_table(const Ceilings& ceilings) {
  Table table{.name = "ceilings", .title = "Measured ceilings"};
  table.columns = {text_column("ceiling"), real_column("value", "", "", 1), text_column("unit")};
  if (!ceilings.known()) return table;
  table.add_row({"bandwidth", ceilings.bandwidth_gb_s, "GB/s"});
  table.add_row({"arithmetic outside matrix products", ceilings.arithmetic_gflops, "GFLOP/s"});
  for (const auto& [dtype, gflops] : ceilings.products_gflops) {
    table.add_row({fmt::format("matrix products, {}", name_of(dtype)), gflops, "GFLOP/s"});
  }
  if (!ceilings.how.empty()) table.notes.push_back(ceilings.how);
  return table;
}

}  // namespace tracestep
