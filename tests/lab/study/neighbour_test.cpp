// What a report says of what is missing, and of codes and names.
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
using testing::small_study;
using testing::wrong_claims;

class NeighbourTest : public ::testing::Test {
 protected:
  Json& cell(const char* table, const Evidence::Where& where, const char* column) {
    return cell_of(tables_, table, where, column);
  }
  // The answer of the study, or of the first screen. Its claims must hold.
  Answer of(std::string_view id) {
    for (std::span<const Question> all : {questions(), summary_questions()}) {
      const auto found = std::ranges::find(all, id, &Question::id);
      if (found == all.end()) continue;
      Answer out = answer(*found, tables_);
      EXPECT_THAT(wrong_claims(out, tables_), IsEmpty()) << out.text.words();
      return out;
    }
    ADD_FAILURE() << id;
    return {};
  }
  std::string text_of(std::string_view id) { return of(id).text.words(); }

  const Evidence::Where step_ = {{"size", "small"}, {"mode", "step"}, {"ops", "fused"}};
  std::vector<Table> tables_ = small_study().tables;
};

TEST_F(NeighbourTest, AColumnOfCellsThatHoldsNumbersIsNoParameters) {
  cell("granularity", {{"size", "small"}, {"mode", "step"}}, "cell") = Json::Array{0.5};
  EXPECT_THAT(of("fused").command, HasSubstr("tracestep bench"));
  cell("granularity", {{"size", "small"}, {"mode", "step"}}, "cell") = 0.5;
  EXPECT_THAT(of("fused").command, HasSubstr("tracestep bench"));
}

TEST_F(NeighbourTest, AChartIsLeftOutWhereItsRowsAre) {
  EXPECT_EQ(of("top-kernel").charts.size(), 1u);
  EXPECT_EQ(of("top-kernel").charts[0].title, of("top-kernel").lead.words());
  EXPECT_EQ(of("memory-timeline").charts.size(), 3u) << "measured; forward and a step, predicted";
  std::erase_if(tables_, [](const Table& table) { return table.name == "memory_grid"; });
  EXPECT_EQ(of("memory-timeline").charts.size(), 1u);
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

TEST_F(NeighbourTest, TablesOfThePageHaveNamesAndRowNumbers) {
  const std::string page = study_page(small_study(), Json::object(), Format::kMarkdown, "charts");
  EXPECT_THAT(page, HasSubstr("### Time of a step \\[time]"));
  const std::size_t table = page.find("### Time of a step \\[time]");
  const std::string head = page.substr(table, page.find("\n\n", table + 40) - table);
  EXPECT_THAT(head, HasSubstr("| row |"));
  EXPECT_THAT(head, HasSubstr("|   1 |"));
}

}  // namespace
}  // namespace tracestep
