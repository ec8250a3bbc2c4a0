// The last part of the study: the validity checker's verdicts on its times, and comparisons with
// published tables.
#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "lab/attention/tables.h"
#include "lab/report/columns.h"
#include "lab/report/known_columns.h"
#include "lab/study/study.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

// The steps that a row of a table is about, as their keys. A ladder's rows have the key of the
// whole ladder, and are those of its rungs in their order.
std::vector<std::string> steps_of(const StudyContext& context, const Table& table,
                                  std::size_t row) {
  const std::optional<std::size_t> at = table.index_of("cell");
  const bool is_judged = std::ranges::any_of(table.columns, is_verdict_column);
  if (!at || !is_judged) return {};
  if (table.name == "ladder") return {canonical_text(key_of(runs_in(context, "ladder")[row]))};
  const Json& key = table.rows[row][*at];
  std::vector<std::string> out;
  if (key.is_object()) out.push_back(canonical_text(key));
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

// Rows of steps have the verdict of their step, or that of their table where it is worse: a table
// of recorded shares has doubts of its own. A row about two steps has the worse of theirs.
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
      // The count below the table is of its rows by themselves.
      if (!has_changed) continue;
      std::erase_if(table.notes, is_count_of_sound_rows);
    }
  }
}

}  // namespace

void review_part(StudyContext& context) {
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
  if (!context.machine.beside_published) return;
  std::vector<ResultRow> all = rows;
  const Table attention = attention_table(context.attention, environment);
  std::ranges::move(tracestep::rows_of(attention, environment), std::back_inserter(all));
  context.sections.push_back(context.machine.beside_published(std::move(all), environment));
}

}  // namespace tracestep
