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

// The row once more, with the same keys and texts, and other times.
std::vector<Json> twin_of(const Table& table, std::size_t index, double factor) {
  const std::vector<Json>& row = table.rows[index];
  std::vector<Json> out;
  for (const Json& cell : row) {
    const bool is_key = table.columns[out.size()].role == ColumnRole::kKey;
    if (!is_key && cell.is_number() && !cell.is_int()) {
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
      table.rows.push_back(twin_of(table, ref.row, factor));
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

// Rows of several runs can then not be told apart by what a page asks for.
TEST(PlantedRowsTest, WithoutAColumnOfKeysNoRowStandsForAnother) {
  std::size_t refused = 0;
  for (const Question& question : all_questions()) {
    const Answer whole = answer(question, small_study().tables);
    if (whole.refused || question.command == "tracestep study") continue;
    std::set<std::string> named;
    for (const RowRef& ref : rows_in_text(whole)) named.insert(ref.table);
    for (const std::string& name : named) {
      for (const char* key : {"size", "context", "mode", "ops", "precision"}) {
        std::vector<Table> tables = small_study().tables;
        Table& table = table_named(tables, name);
        const auto at = table.index_of(key);
        if (!at || name.starts_with("published")) continue;
        const auto column = static_cast<std::ptrdiff_t>(*at);
        table.columns.erase(table.columns.begin() + column);
        for (std::vector<Json>& row : table.rows) row.erase(row.begin() + column);
        const Answer a = answer(question, tables);
        refused += a.refused ? 1 : 0;
        const auto rows = [&name](const Answer& of) {
          std::set<std::size_t> out;
          for (const RowRef& ref : rows_in_text(of)) {
            if (ref.table == name) out.insert(ref.row);
          }
          return out;
        };
        const auto asked = rows(whole), read = rows(a);
        EXPECT_TRUE(a.refused || std::ranges::includes(asked, read))
            << a.id << " without " << name << "." << key << ": " << a.text.words();
      }
    }
  }
  EXPECT_GT(refused, 30u);
}

TEST(PlantedRowsTest, ATrainingOfOneRowSaysNothingOfTheLoss) {
  std::vector<Table> tables = small_study().tables;
  Table& training = table_named(tables, "training");
  training.rows = {training.rows.back()};
  for (const Question& question : all_questions()) {
    if (question.id != "training" && question.id != "tile-training") continue;
    EXPECT_TRUE(answer(question, tables).refused) << question.id;
  }
}

TEST(PlantedRowsTest, ThatForwardAloneNeverRunsOutIsSaidOfAllCellsOrNone) {
  const auto all = all_questions();
  const Question& question = *std::ranges::find(all, "two-graphs", &Question::id);
  for (const char* key : {"size", "context"}) {
    std::vector<Table> tables = small_study().tables;
    Table& table = table_named(tables, "live_graphs");
    const auto at = static_cast<std::ptrdiff_t>(*table.index_of(key));
    table.columns.erase(table.columns.begin() + at);
    for (std::vector<Json>& row : table.rows) row.erase(row.begin() + at);
    const Answer a = answer(question, tables);
    EXPECT_TRUE(a.refused) << a.text.words();
  }
  std::vector<Table> tables = small_study().tables;
  Table& table = table_named(tables, "live_graphs");
  const std::size_t limit = *table.index_of("limit_bytes");
  for (std::vector<Json>& row : table.rows) row[limit] = std::int64_t{1} << 34;
  table.rows.resize(1);
  EXPECT_TRUE(answer(question, tables).refused) << "one cell is no set of cells";
}

}  // namespace
}  // namespace tracestep
