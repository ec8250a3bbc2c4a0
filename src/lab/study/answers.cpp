#include "lab/study/answers.h"

#include <fmt/ranges.h>

#include "lab/attention/tables.h"
#include "lab/memory/tables.h"
#include "lab/precision/tables.h"
#include "lab/profile/tables.h"
#include "lab/report/columns.h"
#include "lab/time/tables.h"

namespace tracestep {

std::span<const Question> questions() {
  static const std::vector<Question> all = [] {
    std::vector<Question> out;
    for (const auto& part : {time_questions(), profile_questions(), precision_questions(),
                             memory_questions(), attention_questions(), other_questions()}) {
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }();
  return all;
}

Answer answer(const Question& question, std::span<const Table> tables) {
  Answer out{.id = std::string(question.id),
             .topic = std::string(question.topic),
             .question = std::string(question.question),
             .text = {},
             .rows = {},
             .command = std::string(question.command)};
  const Evidence evidence(tables);
  try {
    out.text = question.compose(evidence);
  } catch (const Unsupported& missing) {
    out.refused = true;
    out.text = fmt::format("No answer: {}.", missing.what());
  }
  out.rows = evidence.used();
  return out;
}

std::vector<Answer> answer_all(std::span<const Table> tables) {
  std::vector<Answer> out;
  for (const Question& question : questions()) out.push_back(answer(question, tables));
  return out;
}

namespace {

// "1, 4, 7 to 12"
std::string list_of(const std::vector<std::size_t>& rows) {
  std::string out;
  for (std::size_t i = 0; i < rows.size();) {
    std::size_t end = i + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
    const bool is_run = end - i > 2;
    if (!is_run) end = i + 1;
    out += fmt::format("{}{}", out.empty() ? "" : ", ", rows[i]);
    if (is_run) out += fmt::format(" to {}", rows[end - 1]);
    i = end;
  }
  return out;
}

}  // namespace

std::string rests_on(const Answer& answer) {
  std::vector<std::pair<std::string, std::vector<std::size_t>>> by_table;
  for (const RowRef& ref : answer.rows) {
    if (by_table.empty() || by_table.back().first != ref.table) by_table.push_back({ref.table, {}});
    by_table.back().second.push_back(ref.row + 1);
  }
  std::vector<std::string> words;
  words.reserve(by_table.size());
  for (const auto& [table, rows] : by_table) {
    words.push_back(
        fmt::format("{} {} {}", table, rows.size() == 1 ? "row" : "rows", list_of(rows)));
  }
  return fmt::format("{}", fmt::join(words, "; "));
}

Table answers_table(std::span<const Answer> answers) {
  Table table{.name = "answers", .title = "Questions, and what this run says"};
  table.columns = {text_column("id"),
                   text_column("topic"),
                   text_column("question"),
                   {.name = "refused", .kind = ColumnKind::kBool},
                   text_column("answer", {}, "or why there is none"),
                   text_column("rests_on", "rests on", "tables and rows, counted from 1"),
                   {.name = "rows",
                    .kind = ColumnKind::kStructured,
                    .description = "the same for programs, counted from 0, with the columns read"},
                   text_column("command", {}, "measures the rows again")};
  for (const Answer& a : answers) {
    Json rows = Json::array();
    for (const RowRef& ref : a.rows) {
      Json columns = Json::array();
      for (const std::string& column : ref.columns) columns.push_back(column);
      rows.push_back(Json::Object{{"table", ref.table},
                                  {"row", static_cast<std::int64_t>(ref.row)},
                                  {"columns", std::move(columns)}});
    }
    table.add_row(
        {a.id, a.topic, a.question, a.refused, a.text, rests_on(a), std::move(rows), a.command});
  }
  return table;
}

}  // namespace tracestep
