// Reports with missing rows, and the codes and names that they print.
#include "lab/study/sentences_fixture.h"

namespace tracestep {
namespace {

TEST_F(SentencesTest, AColumnOfCellsThatHoldsNumbersIsNoParameters) {
  set("granularity[size small; mode step].cell", Json::Array{0.5});
  EXPECT_THAT(of("fused").command, HasSubstr("tracestep bench"));
  set("granularity[size small; mode step].cell", 0.5);
  EXPECT_THAT(of("fused").command, HasSubstr("tracestep bench"));
}

TEST_F(SentencesTest, AChartIsLeftOutWhereItsRowsAre) {
  EXPECT_EQ(of("top-kernel").charts.size(), 1u);
  EXPECT_EQ(of("top-kernel").charts[0].title, of("top-kernel").lead.words());
  EXPECT_EQ(of("memory-timeline").charts.size(), 3u) << "measured; forward and a step, predicted";
  std::erase_if(tables_, [](const Table& table) { return table.name == "memory_grid"; });
  EXPECT_EQ(of("memory-timeline").charts.size(), 1u);
}

TEST_F(SentencesTest, CodesOfTheCheckerAreExplainedBelowTheirTable) {
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

TEST_F(SentencesTest, TablesOfThePageHaveNamesAndRowNumbers) {
  const std::string page = study_page(small_study(), Json::object(), Format::kMarkdown, "charts");
  EXPECT_THAT(page, HasSubstr("### Time of a step \\[time]"));
  const std::size_t table = page.find("### Time of a step \\[time]");
  const std::string head = page.substr(table, page.find("\n\n", table + 40) - table);
  EXPECT_THAT(head, HasSubstr("| row |"));
  EXPECT_THAT(head, HasSubstr("|   1 |"));
}

}  // namespace
}  // namespace tracestep
