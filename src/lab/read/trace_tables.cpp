#include "lab/read/trace_tables.h"

#include <algorithm>

#include <fmt/format.h>

#include "lab/measure/statistics.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

constexpr std::size_t kMostRows = 2000;     // of modules and kernels, the longest ones
constexpr std::size_t kMostSamples = 1000;  // steps whose times a file lists one by one

// A part of a step. For a module, `own_ms` is its time without that of the modules in it, and
// `forward_ms` and `backward_ms` are the times of these passes alone.
struct Row {
  std::string name;
  std::vector<double> ms = {};  // in each step
  double calls = 0, step_ms = 0;
  std::string work = {}, op = {}, module = {};
  std::vector<double> own_ms = {}, forward_ms = {}, backward_ms = {};

  double mean_ms() const { return mean_of(ms); }
};

Column deviation_column() {
  return with_digits(-1, col::std_ms("standard deviation over the steps"));
}

Json deviation_of(const std::vector<double>& ms) {
  return finite_or_null(sample_std_of(ms));
}

Fields<Row> part_fields(const char* name, const char* title = "", const char* description = "") {
  return {{as_key(text_column(name, title, description)), &Row::name},
          {col::mean_ms.titled("mean", "per step"), &Row::mean_ms},
          {deviation_column(), [](const Row& r) { return deviation_of(r.ms); }},
          {timed(with_digits(1, col::share_percent("of the mean step"))),
           [](const Row& r) { return Json(percent_of(r.mean_ms(), r.step_ms)); }},
          {col::calls.titled("calls", "per step: kernels, or ops where there are none"),
           [](const Row& r) { return positive_or_null(r.calls); }}};
}

// Sorts rows, the longest first.
void sort_rows(std::vector<Row>& rows) {
  std::ranges::stable_sort(rows, std::greater<>(), &Row::mean_ms);
}

// The parts of a level; of very many only the longest, as gigabytes of rows help nobody.
std::vector<const Part*> longest_parts(const ReadTrace& t, PartLevel level) {
  std::vector<const Part*> out = t.times.parts.of(level);
  if (out.size() <= kMostRows) return out;
  std::ranges::stable_sort(out, std::greater<>(),
                           [](const Part* p) { return p->times.total_ns(); });
  out.resize(kMostRows);
  return out;
}

std::vector<Row> rows_of(const ReadTrace& t, PartLevel level) {
  const std::size_t steps = t.times.count();
  std::vector<Row> out;
  for (const Part* part : longest_parts(t, level)) {
    out.push_back({.name = t.name_of(*part),
                   .ms = part->times.ms_of(steps),
                   .calls = static_cast<double>(part->times.count()) / static_cast<double>(steps),
                   .step_ms = t.times.mean_step_ms()});
    if (level != PartLevel::kKernel) continue;
    out.back().work = name_of(part->work);
    if (part->place.op != kNoNumber) out.back().op = t.facts.names[part->place.op];
    out.back().module = t.times.paths[part->place.module];
  }
  return out;
}

double median_or_zero(const std::vector<double>& values) {
  return values.empty() ? 0.0 : median_of(values);
}

// --- one row ------------------------------------------------------------------------------------
// The columns of the table "recording", which has one row.
Fields<ReadTrace> recording_fields() {
  return {
      {as_key(col::file),
       [](const ReadTrace& t) { return Json(t.facts.path.filename().string()); }},
      {col::device,
       [](const ReadTrace& t) {
         if (!t.facts.is_of_device()) return Json("CPU");
         return Json(t.gpu().empty() ? "GPU" : t.gpu());
       }},
      {col::rank, [](const ReadTrace& t) { return when(t.facts.rank >= 0, t.facts.rank); }},
      {col::steps,
       [](const ReadTrace& t) { return Json(static_cast<std::int64_t>(t.times.count())); }},
      {data_only(text_column("marked_by", "steps by")),
       [](const ReadTrace& t) { return Json(name_of(t.times.steps.marks)); }},
      {col::mean_ms("of a device from a step's first kernel to that of the next step"),
       [](const ReadTrace& t) { return Json(t.times.mean_step_ms()); }},
      {deviation_column(), [](const ReadTrace& t) { return deviation_of(t.times.step_ms); }},
      {with_digits(-1, col::median_ms),
       [](const ReadTrace& t) { return Json(median_of(t.times.step_ms)); }},
      {real_column("host_ms", "host", "ms", -1, "the mean step by the host's marks"),
       [](const ReadTrace& t) { return Json(mean_of(t.times.host_ms)); }},
      {timed(col::busy_percent.titled("busy", "of the mean step, in which work ran")),
       [](const ReadTrace& t) {
         return Json(100.0 -
                     percent_of(mean_of(t.times.ms_of(PartLevel::kGap)), t.times.mean_step_ms()));
       }},
      {timed(
           real_column("late_percent", "late", "%", 1,
                       "of the mean step, in which a device had nothing to do, as its next kernel "
                       "was not yet launched")),
       [](const ReadTrace& t) {
         const auto own = static_cast<std::uint32_t>(GapCause::kDevice);
         const double late = mean_of(t.times.ms_of(PartLevel::kGap, own));
         return when(t.facts.is_of_device(), percent_of(late, t.times.mean_step_ms()));
       }},
      {timed(real_column("launch_us", "launch", "µs", 1,
                         "from a launch's begin to its kernel's, median: a few are a device that "
                         "waits for its host, hundreds a queue that is full")),
       [](const ReadTrace& t) {
         return positive_or_null(median_or_zero(t.times.launch_delays_us));
       }},
      {col::calls("per step; ops where there are none"),
       [](const ReadTrace& t) {
         return Json(static_cast<double>(t.times.pieces) / static_cast<double>(t.times.count()));
       }},
      {data_only(bool_column("modules", "modules", "the file has nn.Module frames")),
       [](const ReadTrace& t) { return Json(t.facts.has_modules()); }},
      {data_only(bool_column("shapes")),
       [](const ReadTrace& t) { return Json(t.facts.has_shapes); }},
      {data_only(col::events), [](const ReadTrace& t) { return Json(t.facts.events); }},
      {data_only(int_column("unreadable")),
       [](const ReadTrace& t) { return Json(t.facts.unreadable); }},
      {data_only(int_column("unlinked", "", "kernels whose launch the file lacks")),
       [](const ReadTrace& t) { return Json(t.times.unlinked); }},
      {data_only(bool_column("is_cut", "", "the file ends within its list of events")),
       [](const ReadTrace& t) { return Json(t.facts.is_cut); }},
      {data_only(as_samples(col::samples_ms("one a step"))), [](const ReadTrace& t) {
         return list_of(
             std::span(t.times.step_ms).first(std::min(t.times.step_ms.size(), kMostSamples)));
       }}};
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
// The time of a step by kinds of work and gaps, which adds up to the step.
Table time_table(const ReadTrace& t) {
  std::vector<Row> rows = rows_of(t, PartLevel::kKind);
  const std::vector<double> hidden = t.times.ms_of(PartLevel::kHidden);
  const std::string collectives(name_of(WorkClass::kCollectives));
  const bool is_hidden = mean_of(hidden) > 0;
  std::erase_if(rows,
                [&](Row& row) { return row.name == collectives && row.calls == 0 && !is_hidden; });
  sort_rows(rows);
  for (Row& row : rows) {
    if (row.name == collectives) row.name = "exposed collectives";
  }
  rows.push_back({.name = t.facts.is_of_device() ? "gaps" : "outside of ops",
                  .ms = t.times.ms_of(PartLevel::kGap),
                  .step_ms = t.times.mean_step_ms()});
  Table out =
      table_of("time", "A step by kinds of work", part_fields("kind", "kind of work"), rows);
  if (is_hidden) {
    out.notes.push_back(fmt::format(
        "collectives take {:.4g} ms more beside other work, which costs nothing", mean_of(hidden)));
  }
  return out;
}

Table pass_table(const ReadTrace& t) {
  std::vector<Row> rows = rows_of(t, PartLevel::kPass);
  std::erase_if(rows, [](const Row& row) { return row.calls == 0; });
  return table_of("passes", "A step by passes", part_fields("pass", "pass"), rows);
}

Table gap_table(const ReadTrace& t) {
  std::vector<Row> rows = rows_of(t, PartLevel::kGap);
  sort_rows(rows);
  return table_of("gaps", t.facts.is_of_device() ? "Why the device does nothing" : "Outside of ops",
                  part_fields("cause", "cause"), rows);
}

Table kernel_table(const ReadTrace& t) {
  std::vector<Row> rows = rows_of(t, PartLevel::kKernel);
  sort_rows(rows);
  Fields<Row> fields = part_fields("kernel", t.facts.is_of_device() ? "kernel" : "op");
  fields.add(as_key(col::kind), &Row::work);
  fields.add(col::op.titled("launched by", "the op that launched the first of them"),
             [](const Row& r) { return or_null(r.op); });
  fields.add(data_only(col::module.titled("in", "the module in which the first of them ran")),
             [](const Row& r) { return or_null(r.module); });
  return table_of("kernels", t.facts.is_of_device() ? "Kernels" : "Ops", fields, rows);
}

// Adds the times of each module to its own row and to those of all modules around it.
void add_to_outer(std::map<std::string, Row>& rows, const ReadTrace& t, PartLevel level,
                  std::vector<double> Row::*of) {
  for (const Part* part : longest_parts(t, level)) {
    for (std::string path = t.name_of(*part); !path.empty();) {
      std::vector<double>& to = rows[path].*of;
      to.resize(t.times.count());
      part->times.add_to(to);
      const std::size_t slash = path.rfind('/');
      path.resize(slash == std::string::npos ? 0 : slash);
    }
  }
}

// Returns a table of modules, each with the times of all modules within it.
Table module_table(const ReadTrace& t) {
  std::map<std::string, Row> by_path;
  add_to_outer(by_path, t, PartLevel::kModule, &Row::ms);
  add_to_outer(by_path, t, PartLevel::kModuleForward, &Row::forward_ms);
  add_to_outer(by_path, t, PartLevel::kModuleBackward, &Row::backward_ms);
  for (Row& own : rows_of(t, PartLevel::kModule)) {
    if (own.name.empty()) continue;
    Row& row = by_path[own.name];
    row.own_ms = std::move(own.ms);
    row.calls = own.calls;
  }
  std::vector<Row> rows;
  for (auto& [path, row] : by_path) {
    row.name = path;
    row.step_ms = t.times.mean_step_ms();
    rows.push_back(std::move(row));
  }
  sort_rows(rows);
  const auto mean_or_null = [](std::vector<double> Row::*of) {
    return
        [of](const Row& r) { return (r.*of).empty() ? Json() : positive_or_null(mean_of(r.*of)); };
  };
  Fields<Row> fields = part_fields("module", "", "by classes, as the recording numbers them");
  fields.add(with_digits(-1, col::forward_ms), mean_or_null(&Row::forward_ms));
  fields.add(with_digits(-1, col::backward_ms), mean_or_null(&Row::backward_ms));
  fields.add(real_column("own_ms", "itself", "ms", -1, "without the modules in it"),
             mean_or_null(&Row::own_ms));
  return table_of("modules", t.facts.has_modules() ? "Modules" : "Ranges", fields, rows);
}

}  // namespace

std::string ReadTrace::name_of(const Part& part) const {
  switch (part.level) {
    case PartLevel::kKind:
      return std::string(tracestep::name_of(WorkClass{static_cast<std::uint8_t>(part.number)}));
    case PartLevel::kPass:
      return std::string(tracestep::name_of(TracePass{static_cast<std::uint8_t>(part.number)}));
    case PartLevel::kGap:
      return std::string(tracestep::name_of(GapCause{static_cast<std::uint8_t>(part.number)}));
    case PartLevel::kKernel: return facts.names[part.number];
    default: return times.paths[part.number];
  }
}

std::string ReadTrace::gpu() const {
  const bool is_known = facts.is_of_device() && times.device < facts.gpus.size();
  return is_known ? facts.gpus[times.device] : "";
}

ReadTrace read_trace_of_file(const std::filesystem::path& path, const ReadTrace* eager,
                             std::int32_t kept_step) {
  EventOrder events;
  ReadTrace out{.facts = read_trace_events(path, events)};
  TraceTimes times;
  times.kept_step = kept_step;
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

Table step_table(const ReadTrace& trace) {
  std::vector<WorkPiece> pieces = trace.times.kept;
  std::ranges::stable_sort(pieces, {}, &WorkPiece::start_ns);
  const std::int64_t begin = pieces.empty() ? 0 : pieces.front().start_ns;
  const auto us = [](std::int64_t ns) { return Json(1e-3 * static_cast<double>(ns)); };
  const Fields<WorkPiece> fields{
      {real_column("start_us", "begins", "µs", 3),
       [=](const WorkPiece& p) { return us(p.start_ns - begin); }},
      {real_column("us", "takes", "µs", 3),
       [=](const WorkPiece& p) { return us(p.end_ns - p.start_ns); }},
      {col::kernel.titled(trace.facts.is_of_device() ? "kernel" : "op"),
       [&](const WorkPiece& p) { return Json(trace.facts.names[p.name]); }},
      {col::kind, [](const WorkPiece& p) { return Json(name_of(p.work)); }},
      {col::pass, [](const WorkPiece& p) { return Json(name_of(p.place.pass)); }},
      {col::module, [&](const WorkPiece& p) { return or_null(trace.times.paths[p.place.module]); }},
      {col::op.titled("launched by"),
       [&](const WorkPiece& p) {
         return p.place.op == kNoNumber ? Json() : Json(trace.facts.names[p.place.op]);
       }},
      {int_column("device"), [](const WorkPiece& p) { return Json(std::int64_t{p.device}); }}};
  return table_of("step", fmt::format("Step {} of the recording", trace.times.kept_step + 1),
                  fields, pieces);
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
      {as_key(col::op), &Row::name},
      {int_column("calls", "", "in the whole file"), [](const Row& w) { return Json(w.calls); }},
      {with_digits(-1, col::total_ms), [=](const Row& w) { return ms(w.total_ns); }},
      {real_column("self_ms", "self", "ms", -1, "outside of ops, ranges and calls within it"),
       [=](const Row& w) { return ms(w.own_ns); }}};
  return table_of("ops", "Ops, ranges and calls of the host", fields, rows);
}

}  // namespace tracestep
