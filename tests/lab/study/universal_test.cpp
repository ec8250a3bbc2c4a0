// Words about all rows need several: for a single row, an answer says so, or nothing.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/pages/universal.h"
#include "lab/study/answers.h"
#include "lab/study/study_run.h"
#include "lab/study/summary.h"

namespace tracestep {
namespace {

using testing::compares_itself;
using testing::own_words;
using testing::small_study;
using testing::universal_in;

std::vector<Question> all_questions() {
  std::vector<Question> out(questions().begin(), questions().end());
  out.insert(out.end(), summary_questions().begin(), summary_questions().end());
  return out;
}

// The tables that a page names.
std::vector<Table> tables_of(const Question& question) {
  const auto names = pages::names_in(*question.page);
  std::vector<Table> out;
  std::ranges::copy_if(small_study().tables, std::back_inserter(out), [&](const Table& table) {
    return std::ranges::any_of(names, [&](const auto& name) {
      return name.first.ends_with('@') ? table.name.starts_with(name.first)
                                       : table.name == name.first;
    });
  });
  return out;
}

// Each with one of its rows, one that the page asks for where there is any.
std::vector<Table> single_rows(std::vector<Table> out, std::span<const RowRef> used,
                               std::size_t which) {
  for (Table& table : out) {
    std::vector<std::size_t> wanted;
    for (const RowRef& ref : used) {
      if (ref.table == table.name) wanted.push_back(ref.row);
    }
    if (table.rows.empty()) continue;
    const std::size_t row =
        wanted.empty() ? which % table.rows.size() : wanted[which % wanted.size()];
    table.rows = {std::vector<Json>(table.rows[row])};
  }
  return out;
}

TEST(UniversalTest, NoQuestionSaysOfAllRowsWhatOneRowShows) {
  constexpr std::size_t kRows = 6;
  std::size_t answered = 0;
  for (const Question& question : all_questions()) {
    const Answer whole = answer(question, small_study().tables);
    const std::vector<Table> own = tables_of(question);
    for (std::size_t which = 0; which < kRows; ++which) {
      const Answer a = answer(question, single_rows(own, whole.rows, which));
      if (a.refused) continue;
      ++answered;
      EXPECT_EQ(universal_in(own_words(a.text)), "") << a.id << ": " << a.text.words();
      EXPECT_FALSE(compares_itself(a.text)) << a.id << ": " << a.text.words();
    }
  }
  EXPECT_GT(answered, 50u);
}

TEST(UniversalTest, ASentenceOfAllRowsAndARowBesideItselfAreFound) {
  EXPECT_EQ(universal_in("It does not matter here: all sizes are alike."), "does not matter");
  EXPECT_EQ(universal_in("All kernels together take 3 ms."), "");
  EXPECT_TRUE(compares_itself(Text(Piece{
      "No.", Basis::kRelation, "paired(ranks[1].samples_ms, ranks[1].samples_ms) in [0, 1]"})));
  EXPECT_TRUE(compares_itself(
      Text(Piece{"1", Basis::kFigure, "(collectives[1].bytes / collectives[1].bytes)"})));
  EXPECT_FALSE(compares_itself(
      Text(Piece{"1", Basis::kFigure, "(collectives[1].bytes / collectives[2].bytes)"})));
}

}  // namespace
}  // namespace tracestep
