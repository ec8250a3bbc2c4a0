// Marks in place of the checker's codes, and the reasons in words.
#include "lab/measure/marks.h"
#include "lab/measure/validity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/report/columns.h"

namespace tracestep {
namespace {

using ::testing::ElementsAre;

Table judged() {
  Table table{
      .name = "t",
      .columns = {text_column("status"), real_column("others_cores", "", "", 2), verdict_column()}};
  table.add_row({"ok", 0.0, "ok"});
  table.add_row({"ok", 0.0, "note: launch_bound"});
  table.add_row({"ok", 1.3, "doubt: too_few_samples, others_running"});
  table.add_row({"ok", 0.0, "invalid: missing_synchronization"});
  table.add_row({"ok", 1.3, "invalid: unit_mix_up"});
  table.add_row({"oom", Json(), Json()});
  table.notes = {"doubt: 3 rows: … (unsteady)", "a legend", "validity: 2 of 6 measured rows"};
  return table;
}

std::vector<std::string> marks_in(const Table& table) {
  std::vector<std::string> out;
  for (const auto& row : table.rows) out.push_back(row[0].as_string());
  return out;
}

TEST(MarksTest, NoiseIsNeverImpossibleAndAContradictionAlwaysIs) {
  Table table = judged();
  mark_verdicts(table, true);
  EXPECT_THAT(marks_in(table), ElementsAre("✓", "✓", "~", "✗", "✗", ""));
  EXPECT_FALSE(table.index_of("verdict"));
  EXPECT_EQ(table.columns[0].name, "mark");
}

TEST(MarksTest, TheReasonStandsBelowOnceAndInWords) {
  Table table = judged();
  mark_verdicts(table, true);
  EXPECT_THAT(
      table.notes,
      ElementsAre("✗ impossible, 2 rows: the device worked longer than the wall clock ran; "
                  "a derived figure does not follow from its parts",
                  "~ noisy, 1 row: fewer than six samples; other programs ran", "a legend"));
}

TEST(MarksTest, ALocaleWithoutUtf8GetsAscii) {
  Table table = judged();
  mark_verdicts(table, false);
  EXPECT_THAT(marks_in(table), ElementsAre("+", "+", "~", "x", "x", ""));
}

TEST(MarksTest, WithoutMeasuredRowsThereIsNoColumnOfMarks) {
  Table table = judged();
  table.rows = {table.rows.back()};
  mark_verdicts(table, true);
  EXPECT_EQ(table.columns[0].name, "status");
  EXPECT_EQ(table.rows[0].size(), table.columns.size());
  Table other{.name = "t", .columns = {text_column("verdict")}};
  other.add_row({"same"});
  mark_verdicts(other, true);
  EXPECT_TRUE(other.index_of("verdict")) << "another verdict is none of the checker's";
}

// A text without a column of verdicts, as a topic's.
TEST(MarksTest, NotesOfTheCheckerAreInWordsToo) {
  Table table{.name = "t", .columns = {text_column("what")}};
  table.notes = {"doubt: tiny step: the samples lie far apart (unsteady)",
                 "note: tiny step: short (launch_bound)", "a legend"};
  mark_verdicts(table, true);
  EXPECT_THAT(table.notes, ElementsAre("a legend", "~ noisy: tiny step: the samples lie far apart",
                                       "note: tiny step: short (launch_bound)"));
}

}  // namespace
}  // namespace tracestep
