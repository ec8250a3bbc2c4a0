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
  const auto steps = static_cast<double>(trace.times.steps);
  return {.name = std::move(name),
          .ms = times.ms_of(trace.times.steps),
          .calls = static_cast<double>(times.count()) / steps,
          .step_ms = trace.times.mean_step_ms()};
}

std::string words_of(StepMarks marks) {
  switch (marks) {
    case StepMarks::kProfiler: return "ProfilerStep";
    case StepMarks::kOptimizer: return "ends of Optimizer.step";
    case StepMarks::kNone: return "none: the whole file";
  }
  return "?";
}

std::string device_of(const ReadTrace& trace) {
  if (!trace.parts.is_of_device) return "CPU";
  std::uint16_t device = 0;
  if (!trace.parts.pieces.empty()) device = trace.parts.pieces.front().device;
  const auto& gpus = trace.recording.gpus;
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
       [](const ReadTrace& t) { return Json(t.recording.path.filename().string()); }},
      {text_column("device"), [](const ReadTrace& t) { return Json(device_of(t)); }},
      {int_column("rank"),
       [](const ReadTrace& t) { return when(t.recording.rank >= 0, t.recording.rank); }},
      {int_column("steps"),
       [](const ReadTrace& t) { return Json(static_cast<std::int64_t>(t.times.steps)); }},
      {data_only(text_column("marked_by", "steps by")),
       [](const ReadTrace& t) { return Json(words_of(t.parts.marks)); }},
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
           late += mean_of(t.times.gaps[static_cast<std::size_t>(cause)].ms_of(t.times.steps));
         }
         return when(t.parts.is_of_device, percent_of(late, t.times.mean_step_ms()));
       }},
      {timed(real_column("launch_us", "launch", "µs", 1,
                         "from a launch's begin to its kernel's, median: a few are a device that "
                         "waits for its host, hundreds a queue that is full")),
       [](const ReadTrace& t) {
         return positive_or_null(median_or_zero(t.times.launch_delays_us));
       }},
      {real_column("calls", "kernels", "", -1, "per step; ops where there are none"),
       [](const ReadTrace& t) {
         return Json(static_cast<double>(t.parts.pieces.size()) /
                     static_cast<double>(t.times.steps));
       }},
      {data_only(bool_column("modules", "modules", "the file has nn.Module frames")),
       [](const ReadTrace& t) { return Json(t.parts.has_modules); }},
      {data_only(bool_column("shapes")),
       [](const ReadTrace& t) { return Json(t.recording.has_shapes); }},
      {data_only(int_column("events")),
       [](const ReadTrace& t) { return Json(t.recording.events); }},
      {data_only(int_column("unreadable")),
       [](const ReadTrace& t) { return Json(t.recording.unreadable); }},
      {data_only(int_column("unlinked", "", "kernels whose launch the file lacks")),
       [](const ReadTrace& t) { return Json(t.parts.unlinked); }},
      {data_only(bool_column("is_cut", "", "the file ends within its list of events")),
       [](const ReadTrace& t) { return Json(t.recording.is_cut); }},
      {per_step_samples("samples_ms"),
       [](const ReadTrace& t) { return list_of(first_samples(t.times.step_ms)); }}};
}

void add_notes(Table& table, const ReadTrace& t) {
  const auto note = [&](std::string text) { table.notes.push_back(std::move(text)); };
  if (t.parts.marks == StepMarks::kNone) {
    note("the file marks no steps: all of it is taken for one (profiler.step() marks them)");
  }
  if (t.parts.marks == StepMarks::kOptimizer) {
    note("steps end with the optimizer's, as the file has no ProfilerStep");
  }
  if (t.recording.is_cut) note("the file ends early: it is read as far as it goes");
  if (t.recording.unreadable > 0) {
    note(fmt::format("{} of {} events could not be read", t.recording.unreadable,
                     t.recording.events));
  }
  if (!t.parts.has_modules) {
    note("the file has no modules: with_stack=True records them");
  }
  if (t.parts.unlinked > 0) {
    note(fmt::format("{} of {} kernels name no launch: their pass and module are not known",
                     t.parts.unlinked, t.parts.pieces.size()));
  }
  const double graph = percent_of(
      mean_of(t.times.passes[static_cast<std::size_t>(TracePass::kGraph)].ms_of(t.times.steps)),
      t.times.mean_step_ms());
  if (graph >= 1) {
    note(fmt::format(
        "{:.0f} % of a step is in replays of CUDA graphs, whose kernels name no op and no "
        "module",
        graph));
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
  rows.push_back({.name = t.parts.is_of_device ? "gaps" : "outside of ops",
                  .ms = t.times.gap_ms(),
                  .step_ms = t.times.mean_step_ms()});
  Table out =
      table_of("time", "A step by kinds of work", part_fields("kind", "kind of work"), rows);
  if (t.times.hidden_collectives.count() > 0) {
    out.notes.push_back(
        fmt::format("collectives take {:.4g} ms more beside other work, which costs nothing",
                    mean_of(t.times.hidden_collectives.ms_of(t.times.steps))));
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
  return table_of("gaps", t.parts.is_of_device ? "Why the device does nothing" : "Outside of ops",
                  part_fields("cause", "cause"), rows);
}

Table kernel_table(const ReadTrace& t) {
  struct Row : PartRow {
    std::string work, op, module;
  };
  std::vector<Row> rows;
  for (const KernelTimes& kernel : t.times.kernels) {
    if (rows.size() == kMostRows) break;
    Row row{part_of(t.recording.names[kernel.name], kernel.whole, t), {}, {}, {}};
    row.work = name_of(kernel.work);
    if (kernel.op != kNoNumber) row.op = t.recording.names[kernel.op];
    row.module = t.parts.modules[kernel.module];
    rows.push_back(std::move(row));
  }
  const auto mean_or = [](const Row& r) { return mean_of(r.ms); };
  const Fields<Row> fields{
      {as_key(text_column("kernel", t.parts.is_of_device ? "kernel" : "op")), &Row::name},
      {mean_column(), [=](const Row& r) { return Json(mean_or(r)); }},
      {deviation_column(), [](const Row& r) { return deviation_of(r.ms); }},
      {share_column(), [=](const Row& r) { return Json(percent_of(mean_or(r), r.step_ms)); }},
      {calls_column(), [](const Row& r) { return Json(r.calls); }},
      {as_key(text_column("kind")), &Row::work},
      {text_column("op", "launched by", "the op that launched the first of them"),
       [](const Row& r) { return or_null(r.op); }},
      {data_only(text_column("module", "in", "the module in which the first of them ran")),
       [](const Row& r) { return or_null(r.module); }}};
  return table_of("kernels", t.parts.is_of_device ? "Kernels" : "Ops", fields, rows);
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
  const std::size_t steps = t.times.steps;
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
    const std::string& path = t.parts.modules[module->path];
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
  return table_of("modules", t.parts.has_modules ? "Modules" : "Ranges", fields, rows);
}

}  // namespace

ReadTrace read_trace_of_file(const std::filesystem::path& path) {
  ReadTrace out{.recording = read_recording(path)};
  out.parts = parts_of(out.recording);
  out.times = times_of(out.parts);
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
  struct Row {
    std::string name;
    std::int64_t calls = 0, total_ns = 0, own_ns = 0;
  };
  const TraceRecording& r = trace.recording;
  std::map<std::uint32_t, Row> by_name;
  const auto add = [&](std::uint32_t name, std::int64_t total, std::int64_t own) {
    Row& row = by_name[name];
    ++row.calls;
    row.total_ns += total;
    row.own_ns += own;
  };
  // Ops, ranges and calls of a thread, nested: what begins within another is taken out of its own
  // time.
  struct Open {
    std::int64_t end_ns;
    std::uint32_t name;
    std::int64_t total, own;
  };
  std::vector<Open> open;
  const auto close = [&](std::int64_t until) {
    while (!open.empty() && open.back().end_ns <= until) {
      add(open.back().name, open.back().total, open.back().own);
      open.pop_back();
    }
  };
  std::size_t op = 0, range = 0, call = 0;
  for (std::uint32_t thread = 0; thread < r.threads.size(); ++thread) {
    const auto start = [&](const auto& list, std::size_t i) {
      return i < list.size() && list[i].thread == thread ? list[i].start_ns : INT64_MAX;
    };
    for (;;) {
      const std::int64_t at_range = start(r.annotations, range), at_op = start(r.ops, op),
                         at_call = start(r.calls, call), at = std::min({at_range, at_op, at_call});
      if (at == INT64_MAX) break;
      const HostSlice next = at_range == at ? r.annotations[range++]
                             : at_op == at  ? static_cast<const HostSlice&>(r.ops[op++])
                                            : static_cast<const HostSlice&>(r.calls[call++]);
      close(next.start_ns);
      const std::int64_t length = next.end_ns - next.start_ns;
      if (!open.empty()) open.back().own -= length;
      open.push_back({next.end_ns, next.name, length, length});
    }
    close(INT64_MAX);
  }
  std::vector<Row> rows;
  for (auto& [name, row] : by_name) {
    row.name = r.names[name];
    rows.push_back(std::move(row));
  }
  std::ranges::sort(rows, [](const Row& a, const Row& b) {
    return std::pair(b.own_ns, a.name) < std::pair(a.own_ns, b.name);
  });
  const auto ms = [](std::int64_t ns) { return Json(1e-6 * static_cast<double>(ns)); };
  const Fields<Row> fields{
      {as_key(text_column("op")), &Row::name},
      {int_column("calls", "", "in the whole file"), &Row::calls},
      {real_column("total_ms", "total", "ms", -1), [=](const Row& w) { return ms(w.total_ns); }},
      {real_column("self_ms", "self", "ms", -1, "outside of ops, ranges and calls within it"),
       [=](const Row& w) { return ms(w.own_ns); }}};
  return table_of("ops", "Ops, ranges and calls of the host", fields, rows);
}

}  // namespace tracestep
