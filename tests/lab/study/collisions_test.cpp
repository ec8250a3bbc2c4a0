// Charts of all pages and tables of the hand-in: one row, one bar, point or cell; rows that share a
// name are told apart, or refused.
#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "lab/pages/first_answer.h"
#include "lab/pages/pivot.h"
#include "lab/report/columns.h"
#include "lab/study/study_run.h"
#include "lab/study/summary.h"
#include "support/paths.h"

namespace tracestep {
namespace {

using testing::small_study;

// Charts of answers, with their rows looked up, and of commands whose tables the study has.
std::vector<Chart> all_charts() {
  std::vector<Chart> out = charts_of(small_study());
  const auto folder = testing::source_folder() / "src/lab/pages/commands";
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    for (const pages::Page& page :
         pages::answer_pages("tracestep." + file.path().stem().string() + "/1")) {
      for (const pages::Drawing& drawing : page.charts) {
        out.push_back({.kind = drawing.kind, .table = drawing.table, .options = drawing.options});
      }
    }
  }
  return out;
}

// The table that the chart draws; those of a kind have several, of which the first will do.
const Table* table_of(Chart& chart) {
  const auto& tables = small_study().tables;
  const auto found = std::ranges::find_if(tables, [&](const Table& t) {
    return t.name == chart.table || t.name.starts_with(chart.table + "@");
  });
  if (found == tables.end()) return nullptr;
  chart.table = found->name;
  return &*found;
}

std::string drawn(const Chart& chart, const Table& table) {
  return draw_chart(chart, std::vector<Table>{table});
}

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t out = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++out;
  }
  return out;
}

TEST(CollisionsTest, ARowThatStandsThereTwiceIsRefusedByEveryChart) {
  std::size_t refused = 0;
  for (Chart chart : all_charts()) {
    const Table* table = table_of(chart);
    if (table == nullptr || (chart.kind != "bars" && chart.kind != "lines")) continue;
    const std::string whole = drawn(chart, *table);
    for (std::size_t row = 0; row < std::min<std::size_t>(table->rows.size(), 6); ++row) {
      Table twice = *table;
      twice.rows.push_back(std::vector<Json>(table->rows[row]));
      try {
        EXPECT_EQ(drawn(chart, twice), whole) << chart.table << ": it is drawn otherwise";
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 40u);
}

TEST(CollisionsTest, RowsOfTwoPrecisionsAreBarsOfTheirOwnInEveryChart) {
  std::size_t charts = 0;
  for (Chart chart : all_charts()) {
    const Table* table = table_of(chart);
    if (table == nullptr || chart.kind != "bars" || chart.options.find("top") != nullptr) continue;
    const auto precision = table->index_of("precision");
    const Json* const where = chart.options.find("where");
    if (where != nullptr && where->find("precision") != nullptr) continue;  // of one alone
    if (!precision || table->columns[*precision].role != ColumnRole::kKey) continue;
    const std::string whole = drawn(chart, *table);
    Table more = *table;
    for (std::vector<Json> row : table->rows) {
      row[*precision] = row[*precision].as_string() + " again";
      more.rows.push_back(std::move(row));
    }
    EXPECT_EQ(count(drawn(chart, more), "<title>"), 2 * count(whole, "<title>")) << chart.table;
    ++charts;
  }
  EXPECT_GT(charts, 3u);
}

Table times() {
  Table table{.name = "ways",
              .columns = {as_key(text_column("size")), as_key(text_column("ops")),
                          as_key(text_column("executor")), text_column("status"),
                          bytes_column("peak_bytes"), bytes_column("limit_bytes")}};
  table.add_row({"small", "primitive", "eager", "ok", 4096, 2048});
  table.add_row({"small", "fused", "eager", "ok", 2048, 2048});
  table.add_row({"small", "fused", "compiled", "ok", 1024, 2048});
  return table;
}
const pages::Pivot kWays{.down = {"size"}, .across = "executor", .value = "peak_bytes"};

TEST(CollisionsTest, KeysInWhichCellsOfARowWouldDifferGoDownAsWell) {
  const Table ways = times();
  const Table* const all[] = {&ways};
  const Table pivot = pages::pivoted(kWays, all);
  ASSERT_EQ(pivot.rows.size(), 2u);
  EXPECT_EQ(pivot.columns[1].name, "ops");
  EXPECT_EQ(pivot.rows[0][1], Json("primitive"));
  EXPECT_TRUE(pivot.rows[0][3].is_null()) << "primitive ops were not compiled";
  EXPECT_EQ(pivot.rows[1][2], Json("2.00 KiB"));
  EXPECT_EQ(pivot.rows[1][3], Json("1.00 KiB"));
}

TEST(CollisionsTest, APivotRefusesARowThatStandsThereTwice) {
  Table ways = times();
  ways.rows.push_back(std::vector<Json>(ways.rows[0]));
  const Table* const all[] = {&ways};
  EXPECT_THROW(pages::pivoted(kWays, all), Error);
}

TEST(CollisionsTest, ARunThatAnEarlierTableHasStandsOnce) {
  const Table ways = times();
  Table again = times();
  again.name = "more";
  again.rows[0][4] = 9999;
  const Table* const all[] = {&ways, &again};
  EXPECT_EQ(pages::pivoted(kWays, all).rows[0][2], Json("4.00 KiB"));
}

TEST(CollisionsTest, BytesThatDoNotFitAreShownAndMarked) {
  Table ways = times();
  ways.rows[0][3] = "oom";
  const Table* const all[] = {&ways};
  const Table pivot = pages::pivoted(kWays, all);
  EXPECT_EQ(pivot.rows[0][2], Json("4.00 KiB *"));
  EXPECT_THAT(pivot.notes, ::testing::ElementsAre("* does not fit: more than 2.00 KiB"));
  ways.rows[0][4] = Json();  // of a time nothing is known
  EXPECT_EQ(pages::pivoted(kWays, all).rows[0][2], Json("OOM"));
}

}  // namespace
}  // namespace tracestep
