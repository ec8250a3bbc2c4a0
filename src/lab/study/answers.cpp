#include "lab/study/answers.h"

#include <fmt/ranges.h>

#include "lab/attention/tables.h"
#include "lab/compile/tables.h"
#include "lab/memory/tables.h"
#include "lab/precision/tables.h"
#include "lab/profile/tables.h"
#include "lab/report/columns.h"
#include "lab/study/numbers.h"
#include "lab/time/tables.h"
#include "spec/fields.h"
#include "spec/run_flags.h"

namespace tracestep {
namespace {

// Parameters of an attention that no run has.
constexpr std::string_view kAttentionFlags[] = {"width", "mask", "saved"};

// `command` without the flags that say what to measure.
std::string without_cells(std::string_view command) {
  std::string out;
  bool is_value = false;
  for (std::size_t start = 0; start < command.size();) {
    const std::size_t end = std::min(command.find(' ', start), command.size());
    const std::string_view word = command.substr(start, end - start);
    const bool says_cell =
        std::ranges::any_of(run_fields(), [&](const RunField& f) { return f.flag == word; }) ||
        std::ranges::any_of(kAttentionFlags, [&](std::string_view name) {
          return word.starts_with("--") && word.substr(2) == name;
        });
    if (!is_value && !says_cell) out += fmt::format("{}{}", out.empty() ? "" : " ", word);
    is_value = says_cell;
    start = end + 1;
  }
  return out;
}

// The command that measures these cells again: the question's, with their own flags; several where
// they are no grid.
std::string again(std::string_view command, std::span<const Json> cells) {
  if (cells.empty()) return std::string(command);
  const std::string start = without_cells(command);
  std::string out;
  for (const std::string& flags : flags_of(cells, kAttentionFlags)) {
    out += fmt::format("{}{} {}", out.empty() ? "" : " && ", start, flags);
  }
  return out;
}

}  // namespace

std::span<const Question> questions() {
  static const std::vector<Question> all = [] {
    std::vector<Question> out;
    for (const auto& part :
         {time_questions(), profile_questions(), precision_questions(), memory_questions(),
          attention_questions(), compile_questions(), other_questions()}) {
      out.insert(out.end(), part.begin(), part.end());
    }
    std::ranges::stable_sort(out, {}, [](const Question& q) { return place_of(q.id); });
    return out;
  }();
  return all;
}

Answer answer(const Question& question, std::span<const Table> tables) {
  Answer out{.id = std::string(question.id),
             .number = std::string(number_of(question.id)),
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
    out.text = say("No answer: {}.", {missing.why()});
  }
  out.rows = evidence.used();
  for (const RowRef& ref : out.rows) {
    const Table& table = *std::ranges::find(tables, ref.table, &Table::name);
    out.standing = std::max(out.standing, standing_of(table, ref.row));
  }
  if (!out.refused) out.command = again(question.command, evidence.used_cells());
  return out;
}

std::vector<Answer> answer_all(std::span<const Question> questions, std::span<const Table> tables) {
  std::vector<Answer> out;
  for (const Question& question : questions) out.push_back(answer(question, tables));
  return out;
}

std::string_view name_of(Standing standing) {
  switch (standing) {
    case Standing::kSound: return "sound";
    case Standing::kSingle: return "single sample";
    case Standing::kInterrupted: return "interrupted";
    case Standing::kDoubtful: return "doubtful";
    case Standing::kInvalid: return "invalid";
  }
  return "?";
}

Standing standing_of(const Table& table, std::size_t row) {
  Standing out = Standing::kSound;
  const auto worse = [&](Standing standing) { out = std::max(out, standing); };
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const Json& cell = table.rows[row][i];
    const std::string& name = table.columns[i].name;
    if (cell.is_string() && name == "verdict") {
      const std::string& verdict = cell.as_string();
      if (verdict.starts_with("invalid")) worse(Standing::kInvalid);
      if (verdict.starts_with("doubt")) worse(Standing::kDoubtful);
    }
    if (cell.is_string() && name == "status" && cell.as_string() == "interrupted") {
      worse(Standing::kInterrupted);
    }
    const bool is_alone =
        cell.is_array() && name.ends_with("samples_ms") && cell.items().size() == 1;
    if (is_alone) worse(Standing::kSingle);
  }
  return out;
}

std::string rests_on(const Answer& answer) {
  std::vector<std::pair<std::string, std::vector<std::size_t>>> by_table;
  for (const RowRef& ref : answer.rows) {
    if (by_table.empty() || by_table.back().first != ref.table) by_table.push_back({ref.table, {}});
    by_table.back().second.push_back(ref.row + 1);
  }
  std::vector<std::string> words;
  words.reserve(by_table.size());
  for (const auto& [table, rows] : by_table) {
    words.push_back(fmt::format("{} {} {}", table, rows.size() == 1 ? "row" : "rows",
                                list_of_rows(rows, ", ", " to ")));
  }
  return fmt::format("{}", fmt::join(words, "; "));
}

namespace {

Json pieces_of(const Text& text) {
  Json out = Json::array();
  for (const Piece& piece : text.pieces()) {
    Json json = Json::Object{{"text", piece.words}};
    const char* const names[] = {"", "figure", "relation", "quote"};
    if (!piece.formula.empty()) json[names[static_cast<std::size_t>(piece.basis)]] = piece.formula;
    out.push_back(std::move(json));
  }
  return out;
}

}  // namespace

Table answers_table(std::string name, std::string title, std::span<const Answer> answers) {
  Table table{.name = std::move(name), .title = std::move(title)};
  table.columns = {
      text_column("id"),
      text_column("number", {}, "of the question in the handout; empty: it does not ask it"),
      text_column("topic"),
      text_column("question"),
      {.name = "refused", .kind = ColumnKind::kBool},
      text_column("answer", {}, "or why there is none"),
      text_column("rests_on", "rests on", "tables and rows, counted from 1"),
      {.name = "rows",
       .kind = ColumnKind::kStructured,
       .description = "the same for programs, counted from 0, with the columns read"},
      text_column("standing", {}, "of the worst of these rows"),
      {.name = "pieces",
       .kind = ColumnKind::kStructured,
       .description = "the answer, piece by piece; figures, comparisons and quotations "
                      "with the formula that gives them"},
      text_column("command", {}, "measures the rows again, made from their cells")};
  for (const Answer& a : answers) {
    Json rows = Json::array();
    for (const RowRef& ref : a.rows) {
      Json columns = Json::array();
      for (const std::string& column : ref.columns) columns.push_back(column);
      rows.push_back(Json::Object{{"table", ref.table},
                                  {"row", static_cast<std::int64_t>(ref.row)},
                                  {"columns", std::move(columns)}});
    }
    table.add_row({a.id, a.number, a.topic, a.question, a.refused, a.text.words(), rests_on(a),
                   std::move(rows), name_of(a.standing), pieces_of(a.text), a.command});
  }
  return table;
}

}  // namespace tracestep
