// What a report says of a machine that was not left to it: other programs, one cell with several
// times, cells that were measured at different moments.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/study/answers.h"
#include "lab/study/claims.h"
#include "lab/study/study_run.h"
#include "lab/study/summary.h"

namespace tracestep {
namespace {

using testing::cell_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::small_study;
using testing::wrong_claims;

class NeighbourTest : public ::testing::Test {
 protected:
  Json& cell(const char* table, const Evidence::Where& where, const char* column) {
    return cell_of(tables_, table, where, column);
  }
  // Of the study, or of the first screen; its claims hold.
  Answer of(std::string_view id) {
    for (std::span<const Question> all : {questions(), summary_questions()}) {
      const auto found = std::ranges::find(all, id, &Question::id);
      if (found == all.end()) continue;
      Answer out = answer(*found, tables_);
      EXPECT_THAT(wrong_claims(out.text, tables_), IsEmpty()) << out.text.words();
      return out;
    }
    ADD_FAILURE() << id;
    return {};
  }
  std::string text_of(std::string_view id) { return of(id).text.words(); }

  const Evidence::Where step_ = {{"size", "small"}, {"mode", "step"}, {"ops", "fused"}};
  std::vector<Table> tables_ = small_study().tables;
};

// Whatever ran beside the tests.
TEST_F(NeighbourTest, TheFirstScreenSaysHowMuchOthersRan) {
  const auto set_others = [&](double cores, bool where_unknown) {
    for (const char* table : {"cells", "clocks", "attention"}) {
      const auto found = std::ranges::find(tables_, table, &Table::name);
      const auto at = static_cast<std::size_t>(
          std::ranges::find(found->columns, "others_cores", &Column::name) -
          found->columns.begin());
      for (auto& row : found->rows) {
        if (where_unknown || !row[at].is_null()) row[at] = cores;
      }
    }
  };
  set_others(0.05, false);
  cell("attention", {{"status", "ok"}}, "others_cores") = 0.01;
  const std::string quiet = text_of("trust-others");
  EXPECT_THAT(quiet, HasSubstr("The host counted them beside "));
  EXPECT_THAT(quiet, HasSubstr(" rows of the table cells"));
  EXPECT_THAT(quiet, HasSubstr(" rows of the table attention"));
  EXPECT_THAT(quiet, Not(HasSubstr("Other programs ran")));
  cell("cells", step_, "others_cores") = 0.35;
  EXPECT_THAT(text_of("trust-others"), HasSubstr("Other programs ran meanwhile"));
  EXPECT_THAT(text_of("trust-others"), HasSubstr("up to 0.35 cores"));
  set_others(0.05, true);
  EXPECT_THAT(text_of("trust-others"), Not(HasSubstr("What ran beside the other rows")));
  cell("cells", step_, "others_cores") = Json();
  EXPECT_THAT(text_of("trust-others"), HasSubstr("What ran beside the other rows is not known."));
  EXPECT_THAT(testing::wrong_claims(of("trust-others").text, tables_), ::testing::IsEmpty());
}

TEST_F(NeighbourTest, ACellWithSeveralTimesIsGivenByItsBestRowWithAllOthers) {
  EXPECT_THAT(text_of("result-step"), Not(HasSubstr("in this study it took")));
  // The row of the table scaling becomes one of the same cell.
  const Evidence::Where scaled = {{"mode", "step"}, {"context", 16}};
  cell("scaling", scaled, "cell") = cell("cells", step_, "cell");
  cell("scaling", scaled, "size") = "small";
  cell("scaling", scaled, "samples_ms") = Json::Array(10, Json(300.0));
  cell("cells", step_, "verdict") = "doubt: too_few_samples";
  EXPECT_THAT(text_of("result-step"), HasSubstr("takes 300.0 ms at the median of 10 samples"));
  EXPECT_THAT(text_of("result-step"), HasSubstr("At another time in this study it took 279.9 ms."));
  cell("clocks", {{"mode", "step"}}, "cell") = cell("cells", step_, "cell");
  EXPECT_THAT(text_of("result-step"),
              HasSubstr("At other times in this study it took 279.9 ms, 10.00 ms."));
  cell("cells", step_, "verdict") = "ok";
  cell("scaling", scaled, "verdict") = "invalid: part_over_whole";
  EXPECT_THAT(text_of("result-step"), HasSubstr("takes 279.9 ms at the median of 8 samples"));
}

TEST_F(NeighbourTest, BackwardOverForwardStandsBesideThatOfAProfile) {
  EXPECT_THAT(text_of("result-passes"), Not(HasSubstr("In a profile")));
  for (const auto& [pass, ms] :
       {std::pair{"forward", 40.0}, {"backward", 76.0}, {"optimizer", 7.0}}) {
    const Evidence::Where where = {{"mode", "step"}, {"pass", pass}};
    cell("passes", where, "ms") = ms;
    cell("passes", where, "cell") = cell("cells", step_, "cell");
  }
  EXPECT_THAT(text_of("result-passes"),
              HasSubstr("backward's kernels take 1.90 times forward's, and those of the optimizer "
                        "7.000 ms"));
  cell("passes", {{"mode", "step"}, {"pass", "forward"}}, "verdict") = "doubt: uneven_instances";
  EXPECT_THAT(text_of("result-passes"), Not(HasSubstr("In a profile")));
}

TEST_F(NeighbourTest, AComparisonThatOtherTablesContradictIsNotGiven) {
  EXPECT_THAT(text_of("fused"), HasSubstr("small: a step takes"));
  EXPECT_THAT(text_of("fused"), HasSubstr("Fused over primitive for others: tiny"));
  cell("granularity", {{"size", "small"}, {"mode", "step"}}, "verdict") = "doubt: measured_apart";
  EXPECT_THAT(text_of("fused"), HasSubstr("tiny: a step takes"));
  EXPECT_THAT(text_of("fused"), HasSubstr("small 0.67 (faster; doubt: measured_apart)"));
  cell("granularity", {{"size", "tiny"}, {"mode", "step"}}, "verdict") = "invalid: two_graphs";
  EXPECT_TRUE(of("fused").refused);
  EXPECT_THAT(text_of("fused"), HasSubstr("took another time elsewhere in this study"));
}

TEST_F(NeighbourTest, ComponentsInTwoRecordingsAreGivenFromBoth) {
  EXPECT_THAT(text_of("scores-by-precision"), HasSubstr("Another recorded step in float32 has"));
  std::erase_if(tables_,
                [](const Table& table) { return table.name.starts_with("time_by_component"); });
  EXPECT_THAT(text_of("scores-by-precision"), Not(HasSubstr("Another recorded step")));
}

TEST_F(NeighbourTest, TheBoundsOfAComparisonAreSaid) {
  EXPECT_THAT(text_of("sizes"), HasSubstr("against the range from 0.80 to 1.25"));
}

TEST_F(NeighbourTest, WhatIsCheapToComputeAgainIsWorthIt) {
  const auto saved = std::ranges::find_if(
      tables_, [](const Table& table) { return table.name.starts_with("saved_by_op@"); });
  ASSERT_NE(saved, tables_.end());
  const auto at = [&](std::string_view name) {
    return static_cast<std::size_t>(std::ranges::find(saved->columns, name, &Column::name) -
                                    saved->columns.begin());
  };
  const std::string before = text_of("saved-operations");
  // A row that frees next to nothing, for next to no work.
  std::vector<Json> little = saved->rows.front();
  little[at("op")] = "rope_table";
  little[at("share_percent")] = 0.01;
  little[at("freed_per_work")] = 1e6;
  little[at("bytes")] = 32;
  saved->rows.push_back(little);
  EXPECT_EQ(text_of("saved-operations"), before);
  saved->rows.back()[at("share_percent")] = 2.0;
  EXPECT_THAT(text_of("saved-operations"), HasSubstr("of it) is rope_table"));
}

// An empty cell may hold anything but parameters; commands are made from parameters alone.
TEST_F(NeighbourTest, AColumnOfCellsThatHoldsNumbersIsNoParameters) {
  cell("granularity", {{"size", "small"}, {"mode", "step"}}, "cell") = Json::Array{0.5};
  EXPECT_THAT(of("fused").command, HasSubstr("tracestep bench"));
  cell("granularity", {{"size", "small"}, {"mode", "step"}}, "cell") = 0.5;
  EXPECT_THAT(of("fused").command, HasSubstr("tracestep bench"));
}

// Readers know no codes and no bare answers.
TEST_F(NeighbourTest, WhatHasNoAnswerOnTheFirstScreenSaysWhatWasAsked) {
  std::erase_if(tables_, [](const Table& table) { return table.name == "passes"; });
  EXPECT_EQ(first_screen_text(of("result-kernels")).words().rfind("Which kernels? No answer", 0),
            0u);
  EXPECT_EQ(first_screen_text(of("result-step")).words().rfind("A training step of small at", 0),
            0u);
}

TEST_F(NeighbourTest, CodesOfTheCheckerAreExplainedBelowTheirTable) {
  const std::vector<Table>& measured = testing::measured_study().tables;
  const auto validity = std::ranges::find(measured, "validity", &Table::name);
  ASSERT_NE(validity, measured.end());
  for (const auto& row : validity->rows) {
    const std::string verdict = row[2].as_string();
    const std::size_t colon = verdict.find(": ");
    if (colon == std::string::npos) continue;
    const std::string code = verdict.substr(colon + 2, verdict.find(',') - colon - 2);
    EXPECT_TRUE(std::ranges::any_of(validity->notes, [&](const std::string& note) {
      return note.starts_with(code + ": ");
    })) << code;
  }
  EXPECT_FALSE(validity->notes.empty());
}

// "Rests on cells row 3" can be looked up in study.md.
TEST_F(NeighbourTest, TablesOfThePageHaveNamesAndRowNumbers) {
  const std::string page = study_page(small_study(), Json::object(), Format::kMarkdown);
  EXPECT_THAT(page, HasSubstr("### Time of a step \\[time]"));
  const std::size_t table = page.find("### Time of a step \\[time]");
  const std::string head = page.substr(table, page.find("\n\n", table + 40) - table);
  EXPECT_THAT(head, HasSubstr("| row |"));
  EXPECT_THAT(head, HasSubstr("|   1 |"));
}

}  // namespace
}  // namespace tracestep
