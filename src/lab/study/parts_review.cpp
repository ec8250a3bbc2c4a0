// The last parts of the study: more rounds of the steps whose noise marks answers, the validity
// checker's verdicts on all times, and comparisons with published tables.
#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "base/error.h"
#include "lab/attention/tables.h"
#include "lab/measure/sampling.h"
#include "lab/measure/statistics.h"
#include "lab/report/columns.h"
#include "lab/report/known_columns.h"
#include "lab/study/study.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

// Returns the keys of the steps whose times a row of a judged table shows. Rows of a ladder have
// the key of the whole ladder; their steps are those of its rungs, in order.
std::vector<std::string> steps_of(const StudyContext& context, const Table& table,
                                  std::size_t row) {
  const std::optional<std::size_t> at = table.index_of("cell");
  const bool is_judged = std::ranges::any_of(table.columns, is_verdict_column);
  if (!at || !is_judged) return {};
  if (table.name == "ladder") return {canonical_text(key_of(runs_in(context, "ladder")[row]))};
  const Json& key = table.rows[row][*at];
  std::vector<std::string> out;
  if (key.is_object()) out.push_back(canonical_text(key_of_step(key)));
  if (!key.is_array()) return out;
  for (const Json& one : key.items()) {
    if (one.is_object()) out.push_back(canonical_text(one));
  }
  return out;
}

// The name of the first table that shows each step.
std::map<std::string, std::string> tables_of_steps(const StudyContext& context) {
  std::map<std::string, std::string> out;
  for (const StudySection& section : context.sections) {
    for (const Table& table : section.tables) {
      for (std::size_t row = 0; row < table.rows.size(); ++row) {
        for (const std::string& key : steps_of(context, table, row)) {
          out.emplace(key, table.name);
        }
      }
    }
  }
  return out;
}

// The steps that any table shows, each once.
std::vector<CellResult> shown_steps(const StudyContext& context) {
  std::vector<RunSpec> runs;
  for (const char* table : {"time", "scaling", "steps", "ways", "ladder", "passes", "ranks"}) {
    std::ranges::move(runs_in(context, table), std::back_inserter(runs));
  }
  std::set<std::string> known;
  std::erase_if(runs, [&](const RunSpec& run) { return !known.insert(key_of(run).dump()).second; });
  return context.measured(runs);
}

using Verdicts = std::vector<std::vector<Verdict>>;

// Explains each code of these summaries ("doubt: unsteady, drifting") below the table.
void note_codes(const std::vector<std::string>& summaries, Table& table) {
  std::set<std::string> codes;
  for (const std::string& summary : summaries) {
    for (std::string& code : read_summary(summary).codes) codes.insert(std::move(code));
  }
  for (const std::string& code : codes) {
    if (const std::string_view doc = doc_of(code); !doc.empty()) {
      table.notes.push_back(fmt::format("{}: {}", code, doc));
    }
  }
}

StudySection validity_section(const StudyContext& context, const std::vector<ResultRow>& rows,
                              const Verdicts& verdicts, const std::vector<std::string>& summaries) {
  Table table{.name = "validity", .title = "What the validity checker says of every timed cell"};
  table.columns = {text_column("cell"), text_column("table", {}, "the first that has its times"),
                   col::verdict, text_column("why")};
  const std::map<std::string, std::string> tables = tables_of_steps(context);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::string why;
    for (const Verdict& v : verdicts[i]) why += (why.empty() ? "" : "; ") + v.text;
    const auto shown = tables.find(canonical_text(*rows[i].parameters()));
    table.add_row({rows[i].label(), shown == tables.end() ? Json() : Json(shown->second),
                   summaries[i], why.empty() ? Json() : Json(why)});
  }
  note_codes(summaries, table);
  return section("validity", {std::move(table)});
}

// Sets the verdict of each row to the worst of its own and of those of its steps (`by_step`, by
// key); its own counts, as rows with recorded shares have doubts that their steps have not.
void set_verdicts(StudyContext& context, const std::map<std::string, std::string>& by_step) {
  const auto worse = [](const std::string& a, const std::string& b) {
    return read_summary(a).worst > read_summary(b).worst ? a : b;
  };
  for (StudySection& section : context.sections) {
    for (Table& table : section.tables) {
      const auto at = std::ranges::find_if(table.columns, is_verdict_column);
      const auto verdict = static_cast<std::size_t>(at - table.columns.begin());
      const std::optional<std::size_t> status = table.index_of("status");
      bool has_changed = false;
      for (std::size_t i = 0; i < table.rows.size(); ++i) {
        std::vector<Json>& row = table.rows[i];
        if (status && !(row[*status] == Json("ok"))) continue;
        std::string worst;
        for (const std::string& key : steps_of(context, table, i)) {
          const auto found = by_step.find(key);
          if (found != by_step.end())
            worst = worst.empty() ? found->second : worse(found->second, worst);
        }
        if (worst.empty()) continue;
        const Json own = row[verdict];
        row[verdict] = own.is_string() ? worse(own.as_string(), worst) : worst;
        has_changed = has_changed || !(own == row[verdict]);
      }
      // The note that counts sound rows knows only the verdicts of the rows themselves.
      if (!has_changed) continue;
      std::erase_if(table.notes, is_count_of_sound_rows);
    }
  }
}

}  // namespace

namespace {

// Adds the sections made from all gathered cells, with their verdicts. Returns the rows that were
// judged.
std::vector<ResultRow> add_judged_sections(StudyContext& context) {
  add_step_sections(context);
  add_compile_section(context);
  add_memory_sections(context);
  add_precision_section(context);
  const Json& environment = context.machine.environment;
  const std::vector<CellResult> steps = shown_steps(context);
  const std::vector<ResultRow> rows = tracestep::rows_of(cell_table(steps), environment);
  const Verdicts verdicts = judge_all(rows);
  std::vector<std::string> summaries;
  std::map<std::string, std::string> by_step;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    summaries.push_back(summary_of(verdicts[i]));
    by_step[canonical_text(key_of(steps[i].spec))] = summaries.back();
  }
  set_verdicts(context, by_step);
  if (!rows.empty())
    context.sections.push_back(validity_section(context, rows, verdicts, summaries));
  return rows;
}

}  // namespace

namespace {

// Makes the report from the results as they are now; the sections stay as they are.
StudyReport report_so_far(StudyContext& context) {
  std::vector<StudySection> gathered = context.sections;
  add_judged_sections(context);
  return with_answers(in_reading_order(std::exchange(context.sections, std::move(gathered))));
}

// Returns the keys of a row's steps, by its cell or by the label after "@" in its table's name.
std::vector<std::string> steps_behind(const StudyContext& context, std::span<const Table> tables,
                                      const RowRef& ref) {
  const Table& table = *std::ranges::find(tables, ref.table, &Table::name);
  std::vector<std::string> out = steps_of(context, table, ref.row);
  const std::size_t at = ref.table.find('@');
  for (const auto& [key, cell] : context.steps) {
    if (at == std::string::npos || label_of(cell.spec) != ref.table.substr(at + 1)) continue;
    out.push_back(canonical_text(key_of(cell.spec)));
  }
  return out;
}

// A step that is to be visited again, and how often.
struct Again {
  CellResult* cell = nullptr;
  int visits = 0;
  double seconds = 0;  // of a visit
};

int visits_of(const CellResult& cell) {
  return std::max(1, static_cast<int>(cell.visits.size()));
}

// Returns how many more visits narrow the interval of the step's median, to 9 or else to 15 in all:
// of nine it leaves out one on each side, of fifteen three. 0 visits: it has 15 or no samples.
Again again(CellResult& cell) {
  constexpr int kNarrower[] = {9, 15};
  constexpr double kSteps = 1.5 + kVisitSamples;  // warm-up, samples, weights
  Again out{.cell = &cell};
  if (cell.status != Status::kOk || cell.samples_ms.empty()) return out;
  for (const int visits : kNarrower) {
    if (out.visits == 0) out.visits = std::max(0, visits - visits_of(cell));
  }
  const double sampled = cell.is_asynchronous ? kAsynchronousVisitSeconds : kVisitSeconds;
  out.seconds = sampled + kSteps * median_of(cell.samples_ms) * 1e-3;
  return out;
}

// Returns the steps to visit again: those whose noise marks answers as noisy, for as many answers
// as there is time for, the cheapest first.
std::map<std::string, Again> worth_more(StudyContext& context) {
  std::map<std::string, Again> all;
  for (auto& [key, cell] : context.steps) {
    const Again one = again(cell);
    if (one.visits > 0) all[canonical_text(key_of(cell.spec))] = one;
  }
  const StudyReport report = report_so_far(context);
  std::vector<std::set<std::string>> wanted;  // the steps of each marked answer
  for (const Answer& answer : report.answers) {
    if (answer.refused || answer.standing != Standing::kDoubtful) continue;
    std::set<std::string> steps;
    for (const RowRef& ref : answer.worst) {
      for (std::string& key : steps_behind(context, report.tables, ref)) {
        if (all.contains(key)) steps.insert(std::move(key));
      }
    }
    if (!steps.empty()) wanted.push_back(std::move(steps));
  }
  std::map<std::string, double> seconds;
  for (const auto& [key, one] : all) seconds[key] = one.visits * one.seconds;
  std::map<std::string, Again> out;
  for (const std::string& key : cheapest_first(wanted, seconds, context.seconds_left())) {
    out[key] = all[key];
  }
  return out;
}

// Adds a visit to a step; false: a signal came, or memory ran out.
bool visit_again(StudyContext& context, CellResult& cell) {
  constexpr int kMostSamples = 30;
  CellSpec spec = cell.spec;
  spec.protocol = {
      .warmup = 1, .steps = kMostSamples, .recorded_steps = 0, .visit_seconds = kVisitSeconds};
  const std::string stage = context.stage_of(fmt::format("visit {}", visits_of(cell) + 1));
  const auto visited = context.driver().visit_cells<CellResult>(
      stage, std::vector{spec}, {.least = 1, .most = 1, .seconds = context.seconds_left()},
      [&](const CellSpec& one, const auto&) {
        return visit(context.machine.make_device, one, context.driver().stop_signal());
      });
  if (!visited.front() || visited.front()->status != Status::kOk) return false;
  add_visit(cell, *visited.front());
  ++context.begun;
  return true;
}

// Visits the steps in rounds; those that need more visits start in earlier rounds, so that all
// share the last ones. False: time or memory ran out, or a signal came.
bool visit_in_rounds(StudyContext& context, const std::map<std::string, Again>& steps) {
  int rounds = 0;
  for (const auto& [key, step] : steps) rounds = std::max(rounds, step.visits);
  std::vector<const Again*> order;
  for (const auto& [key, step] : steps) order.push_back(&step);
  for (int left = rounds; left > 0; --left) {
    std::ranges::reverse(order);  // no step is always the first
    for (const Again* step : order) {
      if (step->visits < left) continue;
      const bool has_time = context.seconds_left() > step->seconds;
      if (!has_time || !visit_again(context, *step->cell)) return false;
    }
  }
  return true;
}

}  // namespace

std::set<std::string> cheapest_first(std::vector<std::set<std::string>> wanted,
                                     const std::map<std::string, double>& seconds,
                                     double seconds_left) {
  std::set<std::string> out;
  while (!wanted.empty()) {
    const auto seconds_of = [&](const std::set<std::string>& steps) {
      double sum = 0;
      for (const std::string& step : steps) sum += out.contains(step) ? 0 : seconds.at(step);
      return sum;
    };
    const auto cheapest = std::ranges::min_element(wanted, {}, seconds_of);
    seconds_left -= seconds_of(*cheapest);
    if (seconds_left < 0) break;
    out.insert(cheapest->begin(), cheapest->end());
    wanted.erase(cheapest);
  }
  return out;
}

// Visits noisy steps again while time is left; not if the number of rounds was given, nor if cells
// are measured in processes of their own, or by this process for another one.
void more_rounds_part(StudyContext& context) {
  constexpr double kLeastSeconds = 3;  // answers to all questions take one
  const StudyMachine& machine = context.machine;
  if (context.driver().is_child() || machine.in_processes || machine.visits > 0) return;
  while (context.seconds_left() > kLeastSeconds) {  // each pass leaves fewer steps to be visited
    const std::map<std::string, Again> steps = worth_more(context);
    if (steps.empty()) return;
    context.announce(
        fmt::format("more rounds of {} steps that answers are unsure of", steps.size()));
    if (!visit_in_rounds(context, steps)) return;
  }
}

void review_part(StudyContext& context) {
  const Json& environment = context.machine.environment;
  std::vector<ResultRow> all = add_judged_sections(context);
  if (!context.machine.beside_published) return;
  const Table attention = attention_table(context.attention, environment);
  std::ranges::move(tracestep::rows_of(attention, environment), std::back_inserter(all));
  context.sections.push_back(context.machine.beside_published(std::move(all), environment));
}

}  // namespace tracestep
