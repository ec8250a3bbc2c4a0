#include "lab/time/tables.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "analysis/cost.h"
#include "analysis/memory_map.h"
#include "analysis/origins.h"
#include "base/units.h"
#include "ir/op_def.h"
#include "lab/measure/recorded_times.h"
#include "lab/report/digits.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

double ms_of(const Span& s) {
  return static_cast<double>(s.end_ns - s.start_ns) * 1e-6;
}

std::size_t at(Phase phase) {
  return static_cast<std::size_t>(phase);
}

// Makes the column of nodes that run again in backward; people see it if there are such nodes.
Column recompute_column(bool is_there) {
  Column out = real_column("recompute_ms", "recompute", "ms", 3);
  out.data_only = !is_there;
  return out;
}

double total_of(const PhaseTimes& t) {
  return std::accumulate(t.begin(), t.end(), 0.0);
}

// Calls add(origin, ms) for each origin of the node with its share of the node's time.
template <class Add>
void for_each_origin(const Program& program, const Node& node, double ms, Add&& add) {
  const std::vector<double> shares = origin_shares(program, node);
  for (std::size_t i = 0; i < shares.size(); ++i) add(node.origins[i], ms * shares[i]);
}

template <class Key>
std::vector<std::pair<Key, PhaseTimes>> by_total(const std::map<Key, PhaseTimes>& times) {
  std::vector<std::pair<Key, PhaseTimes>> out(times.begin(), times.end());
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return total_of(a.second) > total_of(b.second);
  });
  return out;
}

// The clocks of a cell: kernels' own times are those of a recorded step; the span is that of the
// timed steps, whose gaps recording did not widen.
struct Clocks {
  double span_ms, busy_ms, recorded_span_ms, interrupted_ms;

  // Returns the gaps between kernels; nullopt: recorded kernels took longer than timed steps last.
  std::optional<double> gaps_ms() const {
    return busy_ms <= span_ms ? std::optional(span_ms - busy_ms) : std::nullopt;
  }
  std::optional<double> gaps_percent() const {
    return gaps_ms() ? std::optional(percent_of(*gaps_ms(), span_ms)) : std::nullopt;
  }
  // Returns what shares are a part of: the span, or the kernels' time if that is longer.
  double whole_ms() const { return gaps_ms() ? span_ms : busy_ms; }
  // Returns the share of the span itself, 100 %; nullopt if gaps_ms() is nullopt.
  std::optional<double> span_percent() const {
    return gaps_ms() ? std::optional(100.0) : std::nullopt;
  }
  double recorded_gaps_ms() const { return recorded_span_ms - busy_ms - interrupted_ms; }
  LeftOfSpan left() const {
    const auto ms = [](double value) { return Quantity::exact(value, {}); };
    return {ms(span_ms), ms(recorded_span_ms), ms(recorded_gaps_ms()), ms(interrupted_ms)};
  }
};

Clocks clocks_of(const CellResult& result, double busy_ms) {
  return {result.device_span_ms, busy_ms, static_cast<double>(result.span_ns) * 1e-6,
          result.interrupted_ms};
}

// Makes the column of energy, shared out by time: the device counts that of whole steps only.
Column energy_column(bool is_there) {
  Column out = real_column("energy_j", "energy, by time", "J", kTwoDigits,
                           "modelled: that of the whole device for one step, shared out by time");
  out.data_only = !is_there;
  return out;
}

Column recorded_column() {
  return with_digits(
      3, col::recorded_ms("gaps and span of the recorded step, with what recording adds"));
}

// Says what fills the span besides kernels, and what the instrument may have added to their times.
std::string gaps_note(const CellResult& result, const Clocks& clocks) {
  const bool by_events = result.is_asynchronous;  // instrument_of(), lab/time/cell.cpp
  if (clocks.gaps_ms()) {
    return clocks.left().parts().words() +
           (by_events ? "; a part of the events' own time may be in the kernels' times and between "
                        "kernels"
                      : "");
  }
  return fmt::format(
      "not told by these times, since these kernels take {} longer than the span, {}; shares are "
      "of the kernels' time",
      format_duration_ms(clocks.busy_ms - clocks.span_ms),
      by_events ? "and a part of the events' own time may be in each of them"
                : "and what makes them longer is not recorded");
}

void add_notes(const CellResult& result, const Clocks& clocks, Table& table) {
  table.notes.push_back(fmt::format(
      "kernels' times are of a recorded step (by {}), total is the span of the timed steps, and "
      "gaps are what is left of it: {}",
      result.recorded_by, gaps_note(result, clocks)));
  const ResultRow row = ResultRow::of(cell_columns(), cell_row(result), Json::object());
  for (const Verdict& v : judge(row)) {
    const auto check = std::ranges::find(row_checks(), v.code, &RowCheck::code);
    if (check != row_checks().end() && check->is_of_recording) {
      table.notes.push_back(fmt::format("{}: {}", v.code, v.text));
    }
  }
}

}  // namespace

ComponentTimes component_times(const CellResult& result) {
  ComponentTimes out;
  for (const Span& s : result.spans) {
    if (s.node < 0) continue;
    for_each_origin(
        result.program, result.program.node(s.node), ms_of(s),
        [&](const Origin& o, double ms) { out[component_of(o.path)][at(o.phase)] += ms; });
  }
  return out;
}

Table time_by_component(const CellResult& result) {
  const ComponentTimes times = component_times(result);
  PhaseTimes sum{};
  for (const auto& [component, t] : times) {
    for (std::size_t phase = 0; phase < t.size(); ++phase) sum[phase] += t[phase];
  }
  const Clocks clocks = clocks_of(result, total_of(sum));
  const std::optional<double> energy_j = energy_per_step_j(result);
  Table table{.name = "time_by_component", .title = "Time per component and phase, one step"};
  table.columns = {col::component,
                   with_digits(3, col::forward_ms),
                   recompute_column(sum[at(Phase::kRecompute)] > 0.0),
                   with_digits(3, col::backward_ms),
                   real_column("optimizer_ms", "optimizer", "ms", 3),
                   with_digits(3, col::total_ms),
                   timed(col::share_percent),
                   energy_column(energy_j.has_value()),
                   recorded_column()};
  const auto energy = [&](double ms) {
    const bool is_known = energy_j && clocks.whole_ms() > 0;
    return is_known ? Json(*energy_j * ms / clocks.whole_ms()) : Json();
  };
  const auto add = [&](const std::string& name, const PhaseTimes& t, double total, Json share,
                       Json joules, Json recorded) {
    table.add_row({name, t[at(Phase::kForward)], t[at(Phase::kRecompute)], t[at(Phase::kBackward)],
                   t[at(Phase::kOptimizer)] + t[at(Phase::kCommunication)], total, std::move(share),
                   std::move(joules), std::move(recorded)});
  };
  for (const auto& [component, t] : by_total(times)) {
    const double ms = total_of(t);
    add(component, t, ms, percent_of(ms, clocks.whole_ms()), energy(ms), Json());
  }
  table.add_cells({{"component", "gaps"},
                   {"total_ms", or_null(clocks.gaps_ms())},
                   {"share_percent", or_null(clocks.gaps_percent())},
                   {"energy_j", clocks.gaps_ms() ? energy(*clocks.gaps_ms()) : Json()},
                   {"recorded_ms", clocks.recorded_gaps_ms()}});
  add("total", sum, clocks.span_ms, or_null(clocks.span_percent()), energy(clocks.whole_ms()),
      clocks.recorded_span_ms);
  add_notes(result, clocks, table);
  if (energy_j) {
    table.notes.push_back(
        "energy is modelled: the device counts whole steps, and each row has as "
        "much of it as of the time, whatever its kernels draw");
  }
  return table;
}

Table time_by_class(const CellResult& result) {
  struct Row {
    std::int64_t launches = 0;
    double ms = 0.0;
    Cost cost;
  };
  std::map<KernelClass, Row> rows;
  for (const Span& s : result.spans) {
    if (s.node < 0) continue;
    const Node& node = result.program.node(s.node);
    Row& row = rows[node.op->kernel_class];
    ++row.launches;
    row.ms += ms_of(s);
    row.cost += cost_of(result.program, node);
  }
  std::vector<std::pair<KernelClass, Row>> sorted(rows.begin(), rows.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.ms > b.second.ms; });
  const Clocks clocks =
      clocks_of(result, std::accumulate(sorted.begin(), sorted.end(), 0.0,
                                        [](double ms, const auto& r) { return ms + r.second.ms; }));
  Table table{.name = "time_by_class", .title = "Time per kernel class, one step"};
  table.columns = {col::class_("from the op records"),
                   col::launches("each runs one kernel or more"),
                   col::ms,
                   timed(col::share_percent),
                   col::gflops,
                   real_column("gbytes_per_s", "GB/s", "", 1),
                   recorded_column()};
  for (const auto& [kernel_class, row] : sorted) {
    const double seconds = row.ms * 1e-3;
    const auto bytes = static_cast<double>(row.cost.bytes_read + row.cost.bytes_written);
    const auto per_ns = [&](double amount) { return seconds > 0 ? amount / seconds * 1e-9 : 0.0; };
    table.add_cells({{"class", name_of(kernel_class)},
                     {"launches", row.launches},
                     {"ms", row.ms},
                     {"share_percent", percent_of(row.ms, clocks.whole_ms())},
                     {"gflops", per_ns(static_cast<double>(row.cost.flops))},
                     {"gbytes_per_s", per_ns(bytes)}});
  }
  table.add_cells({{"class", "gaps"},
                   {"ms", or_null(clocks.gaps_ms())},
                   {"share_percent", or_null(clocks.gaps_percent())},
                   {"recorded_ms", clocks.recorded_gaps_ms()}});
  table.add_cells({{"class", "total"},
                   {"launches", result.launches},
                   {"ms", clocks.span_ms},
                   {"share_percent", or_null(clocks.span_percent())},
                   {"recorded_ms", clocks.recorded_span_ms}});
  add_notes(result, clocks, table);
  return table;
}

}  // namespace tracestep
