// Every question is asked of tables in which a row stands twice, or in which no precision is said:
// it refuses, or answers as before; it never adds rows of one label up.
#include <algorithm>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "lab/study/claims.h"
#include "lab/study/study_run.h"
#include "lab/study/summary.h"

namespace tracestep {
namespace {

using testing::small_study;

std::vector<Question> all_questions() {
  std::vector<Question> out(questions().begin(), questions().end());
  out.insert(out.end(), summary_questions().begin(), summary_questions().end());
  return out;
}

Table& table_named(std::vector<Table>& tables, const std::string& name) {
  return *std::ranges::find(tables, name, &Table::name);
}

// The row once more, with the same texts and other times.
std::vector<Json> twin_of(const std::vector<Json>& row, double factor) {
  std::vector<Json> out;
  for (const Json& cell : row) {
    if (cell.is_number() && !cell.is_int()) {
      out.emplace_back(cell.as_double() * factor);
    } else if (cell.is_array() && !cell.items().empty() && cell.items().front().is_number()) {
      Json::Array scaled;
      for (const Json& item : cell.items()) {
        scaled.emplace_back(item.is_int() ? item : Json(item.as_double() * factor));
      }
      out.emplace_back(std::move(scaled));
    } else {
      out.emplace_back(cell);
    }
  }
  return out;
}

TEST(PlantedRowsTest, ARowThatStandsTwiceIsNeverAddedUp) {
  std::mt19937_64 random(7);
  std::size_t refused = 0, same = 0;
  for (const Question& question : all_questions()) {
    const Answer whole = answer(question, small_study().tables);
    if (whole.refused) continue;
    for (const RowRef& ref : rows_in_text(whole)) {
      std::vector<Table> tables = small_study().tables;
      Table& table = table_named(tables, ref.table);
      const double factor = 1.5 + static_cast<double>(random() % 100) / 50;
      table.rows.push_back(twin_of(table.rows[ref.row], factor));
      const std::size_t planted = table.rows.size() - 1;
      const Answer a = answer(question, tables);
      ++(a.refused ? refused : same);
      // Without the row's sentence an answer may have another, whose figures rest on other rows.
      for (const Piece& piece : a.lead.pieces()) {
        const bool is_said = !a.refused && piece.basis == Basis::kFigure;
        EXPECT_FALSE(is_said && formula_has_row(piece.formula, ref.table, planted))
            << a.id << ": " << a.lead.words();
      }
    }
  }
  EXPECT_GT(refused, 50u);
}

TEST(PlantedRowsTest, WithoutAPrecisionNoTimeIsAnswered) {
  std::size_t refused = 0;
  for (const Question& question : all_questions()) {
    const Answer whole = answer(question, small_study().tables);
    if (whole.refused || question.command == "tracestep study") continue;  // of all cells
    std::set<std::string> named;
    for (const RowRef& ref : rows_in_text(whole)) named.insert(ref.table);
    for (const std::string& name : named) {
      std::vector<Table> tables = small_study().tables;
      Table& table = table_named(tables, name);
      const auto precision = table.index_of("precision");
      if (!precision || name.starts_with("published")) continue;
      const auto cell = table.index_of("cell");  // which says it as well
      for (std::vector<Json>& row : table.rows) {
        row[*precision] = Json();
        if (cell) row[*cell] = Json();
      }
      const Answer a = answer(question, tables);
      const bool rests_on_it = !a.refused && std::ranges::any_of(rows_in_text(a), [&](auto& ref) {
        return ref.table == name;
      });
      EXPECT_FALSE(rests_on_it) << a.id << ": " << a.text.words();
      refused += a.refused ? 1 : 0;
    }
  }
  EXPECT_GT(refused, 20u);
}

}  // namespace
}  // namespace tracestep
