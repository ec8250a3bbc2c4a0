#include "lab/read/trace_tables.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "lab/measure/statistics.h"
#include "lab/report/columns.h"
#include "lab/report/fields.h"

namespace tracestep {
namespace {

constexpr std::size_t kMostRows = 2000;     // of modules and kernels, the longest ones
constexpr std::size_t kMostSamples = 1000;  // steps whose times a file lists one by one

// The time of something in the steps of a recording, and the steps it is a part of.
struct PartRow {
  std::string name;
  std::vector<double> ms = {};
  double calls = 0;
  double step_ms = 0;
};

Column share_column() {
  return timed(real_column("share_percent", "share", "%", 1, "of the mean step"));
}
Column mean_column() {
  return real_column("mean_ms", "mean", "ms", -1, "per step");
}
Column deviation_column() {
  return real_column("std_ms", "std", "ms", -1, "standard deviation over the steps");
}
Column calls_column() {
  return real_column("calls", "calls", "", -1, "per step: kernels, or ops where there are none");
}
Column per_step_samples(std::string name) {
  Column out = as_samples(reals_column(std::move(name), "one a step"));
  out.data_only = true;
  return out;
}

Json deviation_of(const std::vector<double>& ms) {
  return finite_or_null(sample_std_of(ms));
}

Fields<PartRow> part_fields(const char* name, const char* title) {
  return {
      {as_key(text_column(name, title)), &PartRow::name},
      {mean_column(), [](const PartRow& r) { return Json(mean_of(r.ms)); }},
      {deviation_column(), [](const PartRow& r) { return deviation_of(r.ms); }},
      {share_column(), [](const PartRow& r) { return Json(percent_of(mean_of(r.ms), r.step_ms)); }},
      {calls_column(), [](const PartRow& r) { return positive_or_null(r.calls); }}};
}

PartRow part_of(std::string name, const PerStep& times, const ReadTrace& trace) {
  const auto steps = static_cast<double>(trace.times.count());
  return {.name = std::move(name),
          .ms = times.ms_of(trace.times.count()),
          .calls = static_cast<double>(times.count()) / steps,
          .step_ms = trace.times.mean_step_ms()};
}

std::string words_of(StepMarks marks) {
  switch (marks) {
    case StepMarks::kProfiler: return "ProfilerStep";
    case StepMarks::kOptimizer: return "ends of Optimizer.step";
    case StepMarks::kRepeats: return "an op that repeats";
    case StepMarks::kNone: return "none: the whole file";
  }
  return "?";
}

std::string device_of(const ReadTrace& trace) {
  if (!trace.facts.is_of_device()) return "CPU";
  const std::uint16_t device = trace.times.device;
  const auto& gpus = trace.facts.gpus;
  return device < gpus.size() && !gpus[device].empty() ? gpus[device] : "GPU";
}

std::vector<double> first_samples(const std::vector<double>& ms) {
  return {ms.begin(), ms.begin() + static_cast<std::ptrdiff_t>(std::min(ms.size(), kMostSamples))};
}

double median_or_zero(const std::vector<double>& values) {
  return values.empty() ? 0.0 : median_of(values);
}

// --- one row ------------------------------------------------------------------------------------

Fields<ReadTrace> recording_fields() {
  return {
      {as_key(text_column("file")),
       [](const ReadTrace& t) { return Json(t.facts.path.filename().string()); }},
      {text_column("device"), [](const ReadTrace& t) { return Json(device_of(t)); }},
      {int_column("rank"),
       [](const ReadTrace& t) { return when(t.facts.rank >= 0, t.facts.rank); }},
      {int_column("steps"),
       [](const ReadTrace& t) { return Json(static_cast<std::int64_t>(t.times.count())); }},
      {data_only(text_column("marked_by", "steps by")),
       [](const ReadTrace& t) { return Json(words_of(t.times.steps.marks)); }},
      {real_column("mean_ms", "step", "ms", -1,
                   "of a device from a step's first kernel to that of the next step"),
       [](const ReadTrace& t) { return Json(t.times.mean_step_ms()); }},
      {deviation_column(), [](const ReadTrace& t) { return deviation_of(t.times.step_ms); }},
      {real_column("median_ms", "median", "ms", -1),
       [](const ReadTrace& t) { return Json(median_of(t.times.step_ms)); }},
      {real_column("host_ms", "host", "ms", -1, "the mean step by the host's marks"),
       [](const ReadTrace& t) { return Json(mean_of(t.times.host_ms)); }},
      {timed(real_column("busy_percent", "busy", "%", 1, "of the mean step, in which work ran")),
       [](const ReadTrace& t) {
         return Json(100.0 - percent_of(mean_of(t.times.gap_ms()), t.times.mean_step_ms()));
       }},
      {timed(
           real_column("late_percent", "late", "%", 1,
                       "of the mean step, in which a device had nothing to do, as its next kernel "
                       "was not yet launched")),
       [](const ReadTrace& t) {
         double late = 0;
         for (const GapCause cause : kAllGapCauses) {
           if (cause == GapCause::kDevice) continue;
           late += mean_of(t.times.gaps[static_cast<std::size_t>(cause)].ms_of(t.times.count()));
         }
         return when(t.facts.is_of_device(), percent_of(late, t.times.mean_step_ms()));
       }},
      {timed(real_column("launch_us", "launch", "µs", 1,
                         "from a launch's begin to its kernel's, median: a few are a device that "
                         "waits for its host, hundreds a queue that is full")),
       [](const ReadTrace& t) {
         return positive_or_null(median_or_zero(t.times.launch_delays_us));
       }},
      {real_column("calls", "kernels", "", -1, "per step; ops where there are none"),
       [](const ReadTrace& t) {
         return Json(static_cast<double>(t.times.pieces) / static_cast<double>(t.times.count()));
       }},
      {data_only(bool_column("modules", "modules", "the file has nn.Module frames")),
       [](const ReadTrace& t) { return Json(t.facts.has_modules()); }},
      {data_only(bool_column("shapes")),
       [](const ReadTrace& t) { return Json(t.facts.has_shapes); }},
      {data_only(int_column("events")), [](const ReadTrace& t) { return Json(t.facts.events); }},
      {data_only(int_column("unreadable")),
       [](const ReadTrace& t) { return Json(t.facts.unreadable); }},
      {data_only(int_column("unlinked", "", "kernels whose launch the file lacks")),
       [](const ReadTrace& t) { return Json(t.times.unlinked); }},
      {data_only(bool_column("is_cut", "", "the file ends within its list of events")),
       [](const ReadTrace& t) { return Json(t.facts.is_cut); }},
      {per_step_samples("samples_ms"),
       [](const ReadTrace& t) { return list_of(first_samples(t.times.step_ms)); }}};
}

void add_notes(Table& table, const ReadTrace& t) {
  const auto note = [&](std::string text) { table.notes.push_back(std::move(text)); };
  if (t.times.steps.marks == StepMarks::kNone) {
    note("the file marks no steps: all of it is taken for one (profiler.step() marks them)");
  }
  if (t.times.steps.marks == StepMarks::kRepeats) {
    note(
        fmt::format("the file marks no steps: each begins with {}, after which the same ops follow",
                    t.times.steps.mark));
  }
  if (t.times.steps.marks == StepMarks::kOptimizer) {
    note("steps end with the optimizer's, as the file has no ProfilerStep");
  }
  if (t.facts.is_cut) note("the file ends early: it is read as far as it goes");
  if (t.facts.unreadable > 0) {
    note(fmt::format("{} of {} events could not be read", t.facts.unreadable, t.facts.events));
  }
  if (!t.facts.has_modules()) {
    note("the file has no modules: with_stack=True records them");
  }
  if (t.times.unlinked > 0) {
    note(fmt::format("{} of {} kernels name no launch: their pass and module are not known",
                     t.times.unlinked, t.times.pieces));
  }
  if (t.times.replayed > 0) {
    note(fmt::format(
        "{:.1f} % of the kernels in replays of CUDA graphs have their op, pass and module from the "
        "same order of kernels outside of them",
        percent_of(t.times.named, t.times.replayed)));
  }
}

// --- parts of a step ----------------------------------------------------------------------------

Table time_table(const ReadTrace& t) {
  std::vector<PartRow> rows;
  for (const WorkClass work : kAllWorkClasses) {
    const PerStep& times = t.times.kinds[static_cast<std::size_t>(work)];
    if (work == WorkClass::kCollectives && t.times.hidden_collectives.count() + times.count() == 0)
      continue;
    rows.push_back(part_of(std::string(name_of(work)), times, t));
    if (work == WorkClass::kCollectives) rows.back().name = "exposed collectives";
  }
  std::ranges::stable_sort(
      rows, [](const PartRow& a, const PartRow& b) { return mean_of(a.ms) > mean_of(b.ms); });
  rows.push_back({.name = t.facts.is_of_device() ? "gaps" : "outside of ops",
                  .ms = t.times.gap_ms(),
                  .step_ms = t.times.mean_step_ms()});
  Table out =
      table_of("time", "A step by kinds of work", part_fields("kind", "kind of work"), rows);
  if (t.times.hidden_collectives.count() > 0) {
    out.notes.push_back(
        fmt::format("collectives take {:.4g} ms more beside other work, which costs nothing",
                    mean_of(t.times.hidden_collectives.ms_of(t.times.count()))));
  }
  return out;
}

Table pass_table(const ReadTrace& t) {
  std::vector<PartRow> rows;
  for (const TracePass pass : kAllTracePasses) {
    const PerStep& times = t.times.passes[static_cast<std::size_t>(pass)];
    if (times.count() > 0) rows.push_back(part_of(std::string(name_of(pass)), times, t));
  }
  return table_of("passes", "A step by passes", part_fields("pass", "pass"), rows);
}

Table gap_table(const ReadTrace& t) {
  std::vector<PartRow> rows;
  for (const GapCause cause : kAllGapCauses) {
    const PerStep& times = t.times.gaps[static_cast<std::size_t>(cause)];
    if (times.count() > 0) rows.push_back(part_of(std::string(name_of(cause)), times, t));
  }
  std::ranges::stable_sort(
      rows, [](const PartRow& a, const PartRow& b) { return mean_of(a.ms) > mean_of(b.ms); });
  return table_of("gaps", t.facts.is_of_device() ? "Why the device does nothing" : "Outside of ops",
                  part_fields("cause", "cause"), rows);
}

Table kernel_table(const ReadTrace& t) {
  struct Row : PartRow {
    std::string work, op, module;
  };
  std::vector<Row> rows;
  for (const KernelTimes& kernel : t.times.kernels) {
    if (rows.size() == kMostRows) break;
    Row row{part_of(t.facts.names[kernel.name], kernel.whole, t), {}, {}, {}};
    row.work = name_of(kernel.work);
    if (kernel.place.op != kNoNumber) row.op = t.facts.names[kernel.place.op];
    row.module = t.times.paths[kernel.place.module];
    rows.push_back(std::move(row));
  }
  const auto mean_or = [](const Row& r) { return mean_of(r.ms); };
  const Fields<Row> fields{
      {as_key(text_column("kernel", t.facts.is_of_device() ? "kernel" : "op")), &Row::name},
      {mean_column(), [=](const Row& r) { return Json(mean_or(r)); }},
      {deviation_column(), [](const Row& r) { return deviation_of(r.ms); }},
      {share_column(), [=](const Row& r) { return Json(percent_of(mean_or(r), r.step_ms)); }},
      {calls_column(), [](const Row& r) { return Json(r.calls); }},
      {as_key(text_column("kind")), &Row::work},
      {text_column("op", "launched by", "the op that launched the first of them"),
       [](const Row& r) { return or_null(r.op); }},
      {data_only(text_column("module", "in", "the module in which the first of them ran")),
       [](const Row& r) { return or_null(r.module); }}};
  return table_of("kernels", t.facts.is_of_device() ? "Kernels" : "Ops", fields, rows);
}

// Modules with all that lies in them, in the order in which they ran.
Table module_table(const ReadTrace& t) {
  struct Row {
    std::string path;
    std::vector<double> own = {}, all = {}, forward = {}, backward = {};
    double calls = 0;
  };
  std::vector<Row> rows;
  std::map<std::string, std::size_t, std::less<>> places;
  const std::size_t steps = t.times.count();
  const auto add = [](std::vector<double>& to, const std::vector<double>& ms) {
    if (to.empty()) to.assign(ms.size(), 0.0);
    for (std::size_t i = 0; i < ms.size(); ++i) to[i] += ms[i];
  };
  // Many modules of many steps would be a table of gigabytes: then the longest ones stand for all.
  std::vector<const ModuleTimes*> kept;
  for (const ModuleTimes& module : t.times.modules) kept.push_back(&module);
  if (kept.size() > kMostRows) {
    std::ranges::nth_element(kept, kept.begin() + kMostRows, [](const auto* a, const auto* b) {
      return a->own.total_ns() > b->own.total_ns();
    });
    kept.resize(kMostRows);
  }
  for (const ModuleTimes* module : kept) {
    const std::string& path = t.times.paths[module->path];
    for (std::string_view at = path;;) {
      const auto [found, is_new] = places.try_emplace(std::string(at), rows.size());
      if (is_new) {
        rows.push_back({.path = std::string(at)});
        rows.back().own.assign(steps, 0.0);
      }
      Row& row = rows[found->second];
      if (at == path) {
        add(row.own, module->own.ms_of(steps));
        row.calls = static_cast<double>(module->own.count()) / static_cast<double>(steps);
      }
      add(row.all, module->own.ms_of(steps));
      add(row.forward, module->passes[0].ms_of(steps));
      add(row.backward, module->passes[1].ms_of(steps));
      if (at.empty()) break;
      const std::size_t slash = at.rfind('/');
      at = slash == std::string_view::npos ? std::string_view() : at.substr(0, slash);
    }
  }
  std::erase_if(rows, [](const Row& row) { return row.path.empty(); });
  std::ranges::sort(rows,
                    [](const Row& a, const Row& b) { return mean_of(a.all) > mean_of(b.all); });
  const double step_ms = t.times.mean_step_ms();
  const Fields<Row> fields{
      {as_key(text_column("module", "", "by classes, as the recording numbers them")), &Row::path},
      {mean_column(), [](const Row& r) { return Json(mean_of(r.all)); }},
      {deviation_column(), [](const Row& r) { return deviation_of(r.all); }},
      {share_column(), [=](const Row& r) { return Json(percent_of(mean_of(r.all), step_ms)); }},
      {real_column("forward_ms", "forward", "ms", -1),
       [](const Row& r) { return positive_or_null(mean_of(r.forward)); }},
      {real_column("backward_ms", "backward", "ms", -1),
       [](const Row& r) { return positive_or_null(mean_of(r.backward)); }},
      {real_column("own_ms", "itself", "ms", -1, "without the modules in it"),
       [](const Row& r) { return positive_or_null(mean_of(r.own)); }},
      {calls_column(), [](const Row& r) { return positive_or_null(r.calls); }}};
  return table_of("modules", t.facts.has_modules() ? "Modules" : "Ranges", fields, rows);
}

}  // namespace

ReadTrace read_trace_of_file(const std::filesystem::path& path, const ReadTrace* eager) {
  EventOrder events;
  ReadTrace out{.facts = read_trace_events(path, events)};
  TraceTimes times;
  if (eager != nullptr) {
    out.eager = eager->eager.renumbered(eager->facts.names, eager->times.paths, out.facts.names,
                                        times.paths);
  }
  out.times = times_of(out.facts, events, out.eager, std::move(times));
  return out;
}

std::vector<Table> trace_tables(const ReadTrace& trace) {
  Table recording =
      table_of("recording", "Steps of the recording", recording_fields(), std::span(&trace, 1));
  add_notes(recording, trace);
  std::vector<Table> out{std::move(recording)};
  for (Table& table : std::vector<Table>{time_table(trace), pass_table(trace), gap_table(trace),
                                         module_table(trace), kernel_table(trace)}) {
    if (!table.rows.empty()) out.push_back(std::move(table));
  }
  return out;
}

Table op_table(const ReadTrace& trace) {
  struct Row : OpTimes {
    std::string name;
  };
  std::vector<Row> rows;
  for (const auto& [name, times] : trace.times.ops)
    rows.push_back({times, trace.facts.names[name]});
  std::ranges::sort(rows, [](const Row& a, const Row& b) {
    return std::pair(b.own_ns, a.name) < std::pair(a.own_ns, b.name);
  });
  const auto ms = [](double ns) { return Json(1e-6 * ns); };
  const Fields<Row> fields{
      {as_key(text_column("op")), &Row::name},
      {int_column("calls", "", "in the whole file"), [](const Row& w) { return Json(w.calls); }},
      {real_column("total_ms", "total", "ms", -1), [=](const Row& w) { return ms(w.total_ns); }},
      {real_column("self_ms", "self", "ms", -1, "outside of ops, ranges and calls within it"),
       [=](const Row& w) { return ms(w.own_ns); }}};
  return table_of("ops", "Ops, ranges and calls of the host", fields, rows);
}

}  // namespace tracestep
