#include "lab/study/study.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "lab/measure/sampling.h"
#include "lab/measure/statistics.h"
#include "lab/report/columns.h"
#include "lab/study/subject.h"
#include "lab/study/summary.h"
#include "runtime/allocator.h"

namespace tracestep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// In running order: what is exact and needs no time, then cheap parts and those that others need. A
// part ends at its share of the whole time; time that it does not use goes to later parts.
struct Part {
  const char* name;
  double until;  // share of the budget
  void (*run)(StudyContext& context);
  const char* tables;  // that lack rows where it had no time
};
constexpr const char* kStepTables =
    "cells, time, granularity, time_by_component@, steps, ways, "
    "scaling, ladder, precision_components, validity";
constexpr Part kParts[] = {
    {"number formats", 0.04, number_part, ""},
    {"predictions", 0.10, plan_part, ""},
    {"bytes of steps, smallest model", 0.12, first_memory_part, ""},
    {"attention alone", 0.24, attention_part, "attention, attention_scaling, attention_ways"},
    {"time of steps, smallest model", 0.46, first_step_part, kStepTables},
    {"training", 0.52, training_part, "training"},
    {"warm-up", 0.56, warm_up_part, "warmup"},
    {"time of steps, larger models", 0.80, other_step_part, kStepTables},
    {"starts, and errors of precisions", 0.90, start_part, "ways, steps, ladder"},
    {"bytes of steps, larger models", 0.93, other_memory_part, "memory"},
    {"one step on many ranks", 0.99, rank_part, "ranks, collectives"},
    // Profiles come last, since a profiler may slow what follows it. Questions need them, so they
    // may take a little over time.
    {"kernels of steps", 1.15, profile_part, "passes, clocks, launch_check, attention@, kinds@"},
    {"review", 1.15, review_part, ""}};

Table part_table() {
  Table table{.name = "parts", .title = "What ran, and for how long"};
  table.columns = {text_column("part"),
                   real_column("seconds", "time", "s", 1),
                   int_column("left_out", "left out", "cells for which there was no time"),
                   text_column("status", "", "done, in part, left out or out of memory"),
                   text_column("detail", "", "of what ran out of memory"),
                   data_only(text_column("tables", "", "that lack rows where it had no time"))};
  return table;
}

std::string status_of(const StudyContext& context) {
  if (context.left_out == 0) return "done";
  return context.begun > 0 ? "in part" : "left out";
}

// Runs a part; returns what it ran out of, or an empty text. Its results until then are kept, and
// the other parts still run.
std::string run_part(const Part& part, StudyContext& context) {
  try {
    part.run(context);
    return {};
  } catch (const OutOfMemory& error) {
    context.announce(fmt::format("{} ran out of memory, and is left out", part.name));
    return error.message();
  }
}

// Where models of one size have several vocabularies, their tables show them.
void show_vocabularies(std::vector<StudySection>& sections) {
  const auto for_each_model = [&](auto&& visit) {
    for (StudySection& section : sections) {
      for (Table& table : section.tables) {
        const auto size = table.index_of("size"), vocab = table.index_of("vocab");
        if (!size || !vocab || !table.index_of("cell")) continue;
        for (const auto& row : table.rows) {
          const bool is_model = row[*vocab].is_int() && row[*size].is_string();
          if (is_model) visit(table.columns[*vocab], row[*size].as_string(), row[*vocab]);
        }
      }
    }
  };
  std::map<std::string, std::set<std::int64_t>> vocabularies;
  for_each_model([&](const Column&, const std::string& size, const Json& vocab) {
    vocabularies[size].insert(vocab.as_int());
  });
  for_each_model([&](Column& column, const std::string& size, const Json&) {
    if (vocabularies[size].size() > 1) column.data_only = false;
  });
}

Table reading_table(const std::vector<StudySection>& sections) {
  Table table{.name = "readings", .title = "The sections in words"};
  table.columns = {text_column("id"), text_column("title"), text_column("reading"),
                   structured_column("tables", "their names")};
  for (const StudySection& s : sections) {
    Json names = Json::array();
    for (const Table& t : s.tables) names.push_back(t.name);
    table.add_row({s.id, s.title, s.reading, std::move(names)});
  }
  return table;
}

// The questions of a study with these tables: about ranks only where ranks ran, or were planned.
std::vector<Question> asked(const std::vector<Table>& tables) {
  std::vector<Question> out;
  std::ranges::copy_if(questions(), std::back_inserter(out), [&](const Question& q) {
    return q.topic != "Ranks" || std::ranges::any_of(pages::names_in(*q.page), [&](auto& name) {
             return std::ranges::find(tables, name.first, &Table::name) != tables.end();
           });
  });
  return out;
}

// A chart without rows, or with rows that nothing tells apart, is left out.
bool can_draw(const Chart& chart, std::span<const Table> tables) {
  try {
    return !draw_chart(chart, tables).empty();
  } catch (const Error& error) {
    log_warn("a chart is left out: {}", error.what());
    return false;
  }
}

}  // namespace

double StudyContext::seconds_left() const {
  return std::chrono::duration<double>(deadline - Clock::now()).count();
}

bool StudyContext::has_time_for(double seconds) {
  const bool has_time = seconds_left() > std::max(0.0, seconds);
  ++(has_time ? begun : left_out);
  return has_time;
}

double StudyContext::seconds_of(const RunSpec& step) const {
  double out = 0;
  const auto add = [&](const RunSpec& run) {
    const CellResult* cell = steps.find({run, {}});
    if (cell != nullptr && cell->status == Status::kOk) {
      out = std::max(out, max_of(cell->samples_ms) * 1e-3);
    }
  };
  add(step);
  if (out > 0) return out;
  const std::vector<RunSpec> timed = runs_in(*this, "time", step.model);
  for (const RunSpec& run : timed) {
    if (run.mode == step.mode) add(run);
  }
  if (out > 0) return out;
  for (const RunSpec& run : timed) {
    add(run);
    if (out > 0) return out * visit_weight(CellSpec{step, {}}) / visit_weight(CellSpec{run, {}});
  }
  return out;
}

const Ceilings& StudyContext::ceilings() {
  if (!known_ceilings) {
    known_ceilings = machine.ceilings ? machine.ceilings(here({})) : Ceilings{};
  }
  return *known_ceilings;
}

RunSpec StudyContext::here(RunSpec run) const {
  run.place = machine.place;
  run.seed = machine.seed;
  return run;
}

namespace {

// The sizes, at the largest shape down to that of a quick study at which the cells of the smallest
// model fit into their share of the time, by what one visit takes now: a small step in many rounds
// says more than a large one in few, and on a busy machine a longer study answers at least what a
// quick one does.
StudySizes fitted(const StudyMachine& machine, StudySizes sizes, double seconds) {
  // The smallest model's cells take as long as so many visits of its step: 16 in three rounds, and
  // the leads in six more.
  constexpr int kVisits = 16 * 3 + 6 * 6;
  const BatchShape quick = quick_study_sizes().shape, usual = sizes.shape;
  const auto tokens = [](const BatchShape& shape) { return shape.batch * shape.context; };
  const bool is_quick = tokens(usual) <= tokens(quick);
  if (sizes.is_shape_fixed || is_quick || machine.traits.has_own_memory()) return sizes;
  CellSpec pilot{{.model = sizes.models.front(), .shape = usual, .mode = Mode::kStep},
                 {.warmup = 1, .steps = kVisitSamples, .recorded_steps = 0}};
  pilot.step.place = machine.place;
  pilot.step.seed = machine.seed;
  const Clock::time_point start = Clock::now();
  visit(machine.make_device, pilot, nullptr);
  const double per_token = kVisits * seconds_since(start) / static_cast<double>(tokens(usual));
  for (const BatchShape& shape : {usual, BatchShape{usual.batch, usual.context / 2},
                                  BatchShape{quick.batch, usual.context / 2}}) {
    if (per_token * static_cast<double>(tokens(shape)) > seconds) continue;
    if (tokens(shape) < tokens(usual)) at_shape(shape, sizes);
    return sizes;
  }
  at_shape(quick, sizes);
  return sizes;
}

double share_of(void (*run)(StudyContext& context)) {
  const Part* const part = std::ranges::find(kParts, run, &Part::run);
  return part->until - (part == kParts ? 0.0 : std::prev(part)->until);
}

}  // namespace

StudyReport run_study(const StudyMachine& machine, const StudySizes& asked, double budget_seconds,
                      const std::function<void(const std::string& what)>& announce) {
  const StudySizes sizes = fitted(machine, asked, share_of(first_step_part) * budget_seconds);
  StudyContext context{.machine = machine, .sizes = sizes, .announce = announce};
  StudyReport out;
  Table parts = part_table();
  const Clock::time_point start = Clock::now();
  const auto seconds = [](double s) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
  };
  double before = 0;
  for (const Part& part : kParts) {
    if (part.run == rank_part && !sizes.parallel.is_on()) continue;  // not asked for
    const Clock::time_point begin = Clock::now();
    // A part that begins late still gets a quarter of its own share.
    const Clock::time_point planned = start + seconds(part.until * budget_seconds);
    context.deadline =
        std::max(planned, begin + seconds(0.25 * (part.until - before) * budget_seconds));
    before = part.until;
    context.begun = context.left_out = 0;
    const std::string lack = run_part(part, context);
    parts.add_row({part.name, seconds_since(begin), context.left_out,
                   lack.empty() ? status_of(context) : "out of memory",
                   lack.empty() ? Json() : Json(lack), part.tables});
  }
  out.sections = std::move(context.sections);
  show_vocabularies(out.sections);
  out.sections.push_back(section("parts", {std::move(parts)},
                                 {{"budget", fmt::format("{:.1f}", budget_seconds / 60.0)},
                                  {"taken", fmt::format("{:.1f}", seconds_since(start) / 60.0)}}));
  std::ranges::stable_sort(out.sections, {}, place_of);
  return answered(std::move(out.sections));
}

StudyReport answered(std::vector<StudySection> sections) {
  StudyReport out;
  out.sections = std::move(sections);
  for (const StudySection& section : out.sections) {
    out.tables.insert(out.tables.end(), section.tables.begin(), section.tables.end());
  }
  // The first table is the one that other programs compare runs by.
  std::ranges::stable_partition(out.tables, [](const Table& t) { return t.name == "cells"; });
  out.tables.push_back(subject_table(out.tables));
  out.summary = answer_all(summary_questions(), out.tables);
  out.answers = answer_all(asked(out.tables), out.tables);
  for (auto* answers : {&out.summary, &out.answers}) {
    for (Answer& a : *answers) {
      std::erase_if(a.charts, [&](const Chart& c) { return !can_draw(c, out.tables); });
    }
  }
  out.tables.push_back(answers_table("summary", "The report in short", out.summary));
  out.tables.push_back(answers_table("answers", "Questions, and what this run says", out.answers));
  out.tables.push_back(reading_table(out.sections));
  return out;
}

Json study_json(const StudyReport& report, const Json& environment) {
  return to_json({kStudySchema, environment, report.tables});
}

}  // namespace tracestep
