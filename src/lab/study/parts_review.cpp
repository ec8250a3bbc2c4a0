// The last part of the study: what the validity checker says of its times, and tables that others
// have published beside them.
#include "lab/attention/tables.h"
#include "lab/published/published.h"
#include "lab/report/columns.h"
#include "lab/study/study.h"

namespace tracestep {
namespace {

std::vector<ResultRow> rows_of(const std::vector<StudyCell>& cells, const Json& environment) {
  const std::vector<Column> columns = cell_columns();
  std::vector<ResultRow> out;
  out.reserve(cells.size());
  for (const StudyCell& cell : cells) {
    out.push_back(ResultRow::of(columns, cell_row(cell.result), environment));
  }
  return out;
}

// Verdicts on rows, as the column "validity" of the tables that show them.
void add_validity(std::vector<StudySection>& sections, std::string_view table,
                  std::span<const std::string> verdicts) {
  for (StudySection& section : sections) {
    for (Table& found : section.tables) {
      if (found.name != table || found.rows.size() != verdicts.size()) continue;
      found.columns.push_back(text_column("validity", {}, "by the validity checker"));
      for (std::size_t i = 0; i < verdicts.size(); ++i) found.rows[i].push_back(verdicts[i]);
    }
  }
}

StudySection validity_section(const std::vector<ResultRow>& rows,
                              std::vector<std::string>& summaries) {
  Table table{.name = "validity", .title = "What the validity checker says of every timed cell"};
  table.columns = {text_column("cell"), text_column("verdict"), text_column("why")};
  std::vector<std::vector<Verdict>> verdicts;
  verdicts.reserve(rows.size());
  for (const ResultRow& row : rows) verdicts.push_back(judge(row));
  for (RowVerdict& v : judge_together(rows)) verdicts[v.row].push_back(std::move(v.verdict));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::string why;
    for (const Verdict& v : verdicts[i]) why += (why.empty() ? "" : "; ") + v.text;
    summaries.push_back(summary_of(verdicts[i]));
    table.add_row({rows[i].label(), summaries.back(), why.empty() ? Json() : Json(why)});
  }
  return {.id = "validity",
          .title = "Is each time what its label says?",
          .reading =
              "Every timed cell is held against the faults that make a number say something "
              "else: too few samples, an unsteady machine, launch-bound steps, throttling, a "
              "profiler that listens, two graphs alive, more work in less time.",
          .tables = {std::move(table)}};
}

// What was measured here, beside what others have published of the same experiments.
StudySection published_section(const StudyContext& context, std::vector<ResultRow> rows) {
  const Json& environment = context.machine.environment;
  const Table attention = attention_table(context.attention, environment);
  for (const auto& row : attention.rows) {
    rows.push_back(ResultRow::of(attention.columns, row, environment));
  }
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
  const Json& environment = context.machine.environment;
  std::vector<ResultRow> rows = rows_of(context.cells, environment);
  for (ResultRow& row : rows_of(context.scaling, environment)) rows.push_back(std::move(row));
  if (!rows.empty()) {
    std::vector<std::string> summaries;
    context.sections.push_back(validity_section(rows, summaries));
    const std::span<const std::string> verdicts = summaries;
    add_validity(context.sections, "cells", verdicts.first(context.cells.size()));
    add_validity(context.sections, "time", verdicts.first(context.cells.size()));
    add_validity(context.sections, "scaling", verdicts.subspan(context.cells.size()));
  }
  context.sections.push_back(published_section(context, std::move(rows)));
}

}  // namespace tracestep
