// The last part of the study: what the validity checker says of its times, and tables that others
// have published beside them.
#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "lab/attention/tables.h"
#include "lab/published/published.h"
#include "lab/report/columns.h"
#include "lab/study/study.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

// The rows of a table of cells; verdicts say `name`, where a person finds the row.
std::vector<ResultRow> rows_of(const std::vector<StudyCell>& cells, const char* name,
                               const Json& environment) {
  Table table = cell_table(cells);
  table.columns.push_back(text_column("table"));
  for (std::vector<Json>& row : table.rows) row.emplace_back(name);
  return tracestep::rows_of(table, environment);
}

std::vector<StudyCell> cells_of(const std::vector<PrecisionCell>& precise) {
  std::vector<StudyCell> out;
  for (const PrecisionCell& cell : precise) out.push_back({cell.result.spec, cell.result});
  return out;
}

using Verdicts = std::vector<std::vector<Verdict>>;

// What each code of these summaries ("doubt: unsteady, drifting") stands for.
void note_codes(const std::vector<std::string>& summaries, Table& table) {
  std::set<std::string> codes;
  for (const std::string& summary : summaries) {
    const std::size_t colon = summary.find(": ");
    for (std::size_t at = colon; at != std::string::npos; at = summary.find(", ", at + 2)) {
      codes.insert(summary.substr(at + 2, summary.find(", ", at + 2) - at - 2));
    }
  }
  for (const std::string& code : codes) {
    if (const std::string_view doc = doc_of(code); !doc.empty()) {
      table.notes.push_back(fmt::format("{}: {}", code, doc));
    }
  }
}

// `summaries`: what each row is worth.
StudySection validity_section(const std::vector<ResultRow>& rows, const Verdicts& verdicts,
                              const std::vector<std::string>& summaries) {
  Table table{.name = "validity", .title = "What the validity checker says of every timed cell"};
  table.columns = {text_column("cell"), text_column("table", {}, "that has its times"),
                   text_column("verdict"), text_column("why")};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::string why;
    for (const Verdict& v : verdicts[i]) why += (why.empty() ? "" : "; ") + v.text;
    const std::string& summary = summaries[i];
    if (summary != summary_of(verdicts[i])) {
      why += (why.empty() ? "" : "; ") + std::string("what the lines below its own table say");
    }
    table.add_row(
        {rows[i].label(), rows[i].text("table"), summary, why.empty() ? Json() : Json(why)});
  }
  note_codes(summaries, table);
  return {.id = "validity",
          .title = "Is each time what its label says?",
          .reading =
              "Every step that was timed for the tables named here is held against the faults that "
              "make a number say something else: too few samples, an unsteady machine, "
              "launch-bound steps, throttling, a "
              "profiler that listens, two graphs alive, a part that takes longer than its whole, "
              "and the same cell timed in another of these tables. What speaks against recorded "
              "steps alone is a doubt where a table has shares of them, and a note where it has "
              "times of steps that nobody recorded. Attention by itself is judged below its own "
              "tables; the starts of the warm-up study are not judged.",
          .tables = {std::move(table)}};
}

Table* find_table(StudyContext& context, std::string_view name) {
  for (StudySection& section : context.sections) {
    const auto found = std::ranges::find(section.tables, name, &Table::name);
    if (found != section.tables.end()) return &*found;
  }
  return nullptr;
}

// A column of verdicts in a table whose rows are the first of `rows`.
void add_verdict_column(StudyContext& context, const char* name, std::span<const ResultRow> rows,
                        std::span<const std::string> summaries) {
  Table* table = find_table(context, name);
  if (table == nullptr) return;
  table->columns.push_back(verdict_column());
  for (std::size_t i = 0; i < table->rows.size(); ++i) {
    table->rows[i].push_back(when(rows[i].text("status") == "ok", summaries[i]));
  }
}

// 0 for "ok", then notes, doubt and invalid, by how much speaks against the row.
int weight_of(std::string_view summary) {
  return summary.starts_with("invalid") ? 3 : summary.starts_with("doubt") ? 2 : summary != "ok";
}

void take_worse(std::string_view verdict, std::string& worst) {
  if (weight_of(verdict) > weight_of(worst)) worst = verdict;
}

// Joins the verdicts that the table `name` has on its rows alone with `summaries`, which judge them
// beside the rows of other tables: both get the worse of the two.
void take_worse_verdicts(StudyContext& context, const char* name,
                         const std::vector<ResultRow>& rows, std::vector<std::string>& summaries) {
  Table* table = find_table(context, name);
  if (table == nullptr) return;
  std::vector<std::size_t> own;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].text("table") == name) own.push_back(i);
  }
  // Some tables have no rows of cells that did not run.
  if (own.size() != table->rows.size()) {
    std::erase_if(own, [&](std::size_t i) { return rows[i].text("status") != "ok"; });
  }
  const std::optional<std::size_t> column = table->index_of("verdict");
  if (own.size() != table->rows.size() || !column) return;
  bool is_worse = false;
  for (std::size_t i = 0; i < own.size(); ++i) {
    Json& cell = table->rows[i][*column];
    if (!cell.is_string()) continue;
    take_worse(cell.as_string(), summaries[own[i]]);
    is_worse = is_worse || summaries[own[i]] != cell.as_string();
    cell = summaries[own[i]];
  }
  // The count below the table is of its rows by themselves.
  if (is_worse) {
    std::erase_if(table->notes, [](const std::string& n) { return n.starts_with("validity: "); });
  }
}

// The rows of the table "granularity" compare two cells each, and have the worse of their verdicts.
void add_pair_verdicts(StudyContext& context, std::span<const ResultRow> rows,
                       std::span<const std::string> summaries) {
  Table* table = find_table(context, "granularity");
  if (table == nullptr) return;
  std::map<std::string, std::string> by_cell;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    by_cell[canonical_text(*rows[i].parameters())] = summaries[i];
  }
  for (std::vector<Json>& row : table->rows) {
    std::string worst = "ok";
    for (const Json& key : row[table->index_of("cell").value()].items()) {
      take_worse(by_cell.at(canonical_text(key)), worst);
    }
    row[table->index_of("verdict").value()] = worst;
  }
}

// What two parts of the study say of one cell is said below both tables.
void add_disagreements(StudyContext& context, const std::vector<ResultRow>& rows,
                       const Verdicts& verdicts) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Table* table = find_table(context, rows[i].text("table"));
    for (const Verdict& v : verdicts[i]) {
      if (v.code != kMeasuredApart || table == nullptr) continue;
      table->notes.push_back(verdict_line(rows[i].label(), v));
    }
  }
}

// What was measured here, beside what others have published of the same experiments.
StudySection published_section(const StudyContext& context, std::vector<ResultRow> rows) {
  const Json& environment = context.machine.environment;
  const Table attention = attention_table(context.attention, environment);
  for (ResultRow& row : tracestep::rows_of(attention, environment)) rows.push_back(std::move(row));
  StudySection out{.id = "published",
                   .title = "Published tables beside this run",
                   .reading =
                       "Figures that others have published of the same experiments, held "
                       "against the program's own bytes, against each other, and against "
                       "cells of the same size where this run has them."};
  out.tables = replay_published(published_tables(), replay_input(std::move(rows), environment));
  out.shown = 1;
  return out;
}

}  // namespace

void review_part(StudyContext& context) {
  add_cell_sections(context);
  add_memory_sections(context);
  add_precision_section(context);
  const Json& environment = context.machine.environment;
  std::vector<ResultRow> rows = rows_of(context.cells, "time", environment);
  const auto add = [&rows](const std::vector<ResultRow>& more) {
    rows.insert(rows.end(), more.begin(), more.end());
  };
  add(rows_of(context.scaling, "scaling", environment));
  const std::vector<ResultRow> steps = rows;  // that published tables may have as well
  add(rows_of(cells_of(context.precise), "steps", environment));
  add(rows_of(context.ways, "ways", environment));
  add(rows_of(context.rungs, "ladder", environment));
  const std::size_t ranks = rows.size();
  add(rows_of(context.ranks, "ranks", environment));
  add(context.plain);
  const Verdicts verdicts = judge_all(rows);
  std::vector<std::string> summaries;
  for (const std::vector<Verdict>& of_row : verdicts) summaries.push_back(summary_of(of_row));
  const std::size_t scaling = context.cells.size();  // where those rows begin
  for (const char* table : {"time", "cells"}) add_verdict_column(context, table, rows, summaries);
  add_verdict_column(context, "scaling", std::span(rows).subspan(scaling),
                     std::span(summaries).subspan(scaling));
  add_verdict_column(context, "ranks", std::span(rows).subspan(ranks),
                     std::span(summaries).subspan(ranks));
  add_pair_verdicts(context, std::span(rows).first(scaling), summaries);
  for (const char* table : {"steps", "ways", "ladder", "clocks"}) {
    take_worse_verdicts(context, table, rows, summaries);
  }
  add_disagreements(context, rows, verdicts);
  if (!rows.empty()) context.sections.push_back(validity_section(rows, verdicts, summaries));
  context.sections.push_back(published_section(context, steps));
}

}  // namespace tracestep
