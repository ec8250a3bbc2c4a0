// The formulas of pages: arithmetic, cells, noise and look-ups.
#include "lab/pages/formula.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/report/columns.h"

namespace tracestep {
namespace {

std::vector<Table> tables() {
  Table t{.name = "t",
          .columns = {text_column("mode"), int_column("count"), reals_column("samples_ms"),
                      text_column("verdict")}};
  t.add_row({"step", 3, Json::Array{4.0, 5.0, 6.0}, "doubt: unsteady"});
  t.add_row({"step", 9, Json::Array{7.0}, "ok"});
  return {t};
}

class FormulaTest : public ::testing::Test {
 protected:
  Evaluated of(std::string_view formula) { return evaluate(formula, scope_); }
  double value(std::string_view formula) { return of(formula).quantity.value; }

  std::vector<Table> tables_ = tables();
  Evidence evidence_{tables_};
  std::vector<Evidence::Row> rows_ = evidence_.rows("t"), row_ = {rows_[0]};
  double looked_up_ = 7;
  Scope scope_{.figure = [](std::string_view name) -> std::optional<Quantity> {
                 if (name == "N") return Quantity::constant(12);
                 if (name == "half") return Quantity::constant(0.5);
                 return std::nullopt;
               },
               .rows = [this](std::string_view name) -> std::span<const Evidence::Row> {
                 if (name == "all") return rows_;
                 return name == "row" ? row_ : std::span<const Evidence::Row>();
               },
               .look_up =
                   [this](const LookUp& asked) {
                     EXPECT_EQ(asked.source + "." + asked.what, "a.b");
                     EXPECT_EQ(asked.keys, (std::vector<std::string>{"x, y", "z"}));
                     return Quantity::constant(looked_up_);
                   }};
};

TEST_F(FormulaTest, AreEvaluatedAndPrintedWithTheirNumbers) {
  EXPECT_EQ(value("2 + 3*4"), 14);
  EXPECT_EQ(value("(2 + 3) * 4 - -1"), 21);
  EXPECT_EQ(value("2^3^2"), 512);
  EXPECT_EQ(value("12 / 2 / 3"), 2);
  EXPECT_EQ(value("max(1, N, 3) - min(half, 2)"), 11.5);
  EXPECT_EQ(value("abs(half - N) + log(1)"), 11.5);
  const Evaluated found = of("N * a.b[x, y; z] + half");
  EXPECT_EQ(found.quantity.value, 84.5);
  EXPECT_EQ(found.numbers, "12 * 7 + 0.5");
  looked_up_ = 1234567;
  EXPECT_EQ(of("a.b[x, y; z]").numbers, "1,234,567");
}

TEST_F(FormulaTest, CellsComeWithTheirRowsAndSamplesWithTheirNoise) {
  EXPECT_EQ(of("2 * row.count").quantity.formula, "(2 * t[1].count)");
  EXPECT_EQ(of("2 * row.count").numbers, "2 * 3");
  const Quantity median = of("median(row.samples_ms)").quantity;
  EXPECT_EQ(median.formula, "median(t[1].samples_ms)");
  EXPECT_LT(median.low, 5);
  EXPECT_GT(median.high, 5);
  EXPECT_EQ(value("min(row.samples_ms)"), 4);
  EXPECT_EQ(value("spread(row.samples_ms)"), 40);
  EXPECT_EQ(of("5 ± row.count").quantity.low, 2);
  EXPECT_EQ(of("between(row.count, 1, 9)").quantity.high, 9);
}

TEST_F(FormulaTest, FunctionsGoOverTheRowsOfAName) {
  EXPECT_EQ(of("sum(all.count)").quantity.formula, "sum(t[1,2].count)");
  EXPECT_EQ(value("sum(all.count)"), 12);
  EXPECT_EQ(value("max(all.count) - min(all.count)"), 6);
  EXPECT_EQ(value("mean(all.count)"), 6);
  EXPECT_EQ(value("count(all.count)"), 2);
  EXPECT_EQ(value("count(all.verdict, \"ok\")"), 1);
  EXPECT_EQ(value("starting(all.verdict, \"doubt\")"), 1);
  EXPECT_EQ(value("starting(all.verdict, \"invalid\")"), 0);
}

TEST_F(FormulaTest, WhatNobodyKnowsIsAnError) {
  for (const char* wrong : {"M", "other.count", "f(1)", "1 +", "2 3", "row.count["}) {
    EXPECT_THROW(of(wrong), std::exception) << wrong;
  }
  EXPECT_THROW(of("row.length"), Unsupported);
  EXPECT_THROW(of("1 / (row.count - 3)"), Unsupported);
}

TEST(PlainNumberTest, NumbersArePrintedInFullWhereTheyAreWhole) {
  EXPECT_EQ(plain_number(3406809600.0), "3,406,809,600");
  EXPECT_EQ(plain_number(-999), "-999");
  EXPECT_EQ(plain_number(0.0100021362), "0.01000214");
  EXPECT_EQ(plain_number(1e300), "1e+300");
}

}  // namespace
}  // namespace tracestep
