#include "lab/time/tables.h"

#include <gtest/gtest.h>

namespace tracestep {
namespace {

TEST(WarmupTest, UnsettledStepsAreThoseAtTheStart) {
  EXPECT_EQ(unsettled_steps(std::vector<double>{1549.87, 84.33, 78, 77, 77, 77, 77, 77}), 1);
  EXPECT_EQ(unsettled_steps(std::vector<double>{200, 120, 90, 77, 77, 77, 77, 77}), 3);
  EXPECT_EQ(unsettled_steps(std::vector<double>{77, 77, 150, 77, 77, 77}), 0);  // later noise
  EXPECT_EQ(unsettled_steps(std::vector<double>{5}), 0);
}

TEST(WarmupTest, TheTableShowsTheFirstStepsAndWhatTheFirstCosts) {
  Json row = Json::object();
  row["size"] = "small";
  row["context"] = 128;
  row["mode"] = "step";
  row["status"] = "ok";
  row["warmup_ms"] = Json::array();
  row["samples_ms"] = Json::array();
  for (double ms : {30.0, 12.0, 10.0, 10.0, 10.0}) row["samples_ms"].push_back(ms);
  row["mean_ms"] = 14.4;
  const std::vector<ResultRow> rows{ResultRow(row)};
  const Table table = warmup_table(rows);
  ASSERT_EQ(table.rows.size(), 1u);
  const auto cell = [&](std::string_view name) {
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      if (table.columns[c].name == name) return table.rows[0][c];
    }
    ADD_FAILURE() << name;
    return Json();
  };
  EXPECT_EQ(cell("warmup").as_int(), 0);
  EXPECT_EQ(cell("steps").as_int(), 5);
  EXPECT_EQ(cell("first_ms").as_double(), 30);
  EXPECT_EQ(cell("second_ms").as_double(), 12);
  EXPECT_EQ(cell("unsettled").as_int(), 2);
  // 30, 12, 10, 10, 10: 14.40 ± 8.76; without the first 10.50 ± 1.00; 3 times the median.
  EXPECT_NE(table.notes[0].find("14.4 ± 8.8 ms"), std::string::npos) << table.notes[0];
  EXPECT_NE(table.notes[0].find("10.5 ± 1.0 ms"), std::string::npos) << table.notes[0];
  EXPECT_NE(table.notes[0].find("3.00 times"), std::string::npos) << table.notes[0];
}

}  // namespace
}  // namespace tracestep
