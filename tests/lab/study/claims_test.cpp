// Laws of answers: whatever the tables hold, a printed text says only what they hold. And the
// checker that says so finds lies.
#include "lab/study/claims.h"

#include <algorithm>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/study/answers.h"
#include "lab/study/random_tables.h"
#include "lab/study/study_run.h"
#include "lab/study/summary.h"

namespace tracestep {
namespace {

using testing::disturb;
using ::testing::IsEmpty;
using testing::small_study;
using testing::wrong_claims;

std::string lines_of(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += "\n  " + line;
  return out;
}

// The tables that a page names.
std::vector<Table> tables_of(const Question& question) {
  const auto names = pages::names_in(*question.page);
  std::vector<Table> out;
  for (const Table& table : small_study().tables) {
    const bool is_named = std::ranges::any_of(names, [&](const auto& name) {
      return name.first.ends_with('@') ? table.name.starts_with(name.first)
                                       : table.name == name.first;
    });
    if (is_named) out.push_back(table);
  }
  return out;
}

// The questions of the study, and those whose answers stand on the first screen.
std::vector<Question> all_questions() {
  std::vector<Question> out(questions().begin(), questions().end());
  out.insert(out.end(), summary_questions().begin(), summary_questions().end());
  return out;
}

TEST(ClaimsTest, EveryAnswerOfASmallStudyIsBorneOutByItsTables) {
  for (const Question& question : all_questions()) {
    const Answer a = answer(question, small_study().tables);
    EXPECT_THAT(wrong_claims(a, small_study().tables), IsEmpty()) << a.id << ": " << a.text.words();
  }
}

// tools/soak/random_tables.py runs this test with many seeds: --gtest_shuffle gives a new one each
// time.
TEST(ClaimsTest, NoTablesMakeAnAnswerSayWhatTheyDoNotHold) {
  constexpr std::uint64_t kTables = 100;  // for each question
  const int round = GTEST_FLAG_GET(shuffle) ? ::testing::UnitTest::GetInstance()->random_seed() : 0;
  const auto first = static_cast<std::uint64_t>(round) * 1000003;
  for (const Question& question : all_questions()) {
    const Answer whole = answer(question, small_study().tables);
    const std::vector<Table> own = tables_of(question);
    std::vector<Table> tables = own;
    std::set<std::string> texts;
    for (std::uint64_t i = 0; i < kTables; ++i) {
      const std::set<std::size_t> touched = disturb(tables, whole.rows, first + i);
      const Answer a = answer(question, tables);
      const std::vector<std::string> wrong = wrong_claims(a, tables);
      if (!wrong.empty()) {
        ADD_FAILURE() << a.id << ", seed " << first + i << ": " << a.text.words()
                      << lines_of(wrong);
        break;
      }
      if (!a.refused) texts.insert(a.text.words());
      for (std::size_t table : touched) tables[table] = own[table];
    }
    EXPECT_GT(texts.size(), 1u) << question.id << " says too little to be tried";
  }
}

// A page that compares the wrong way round says what its relation does not.
TEST(ClaimsTest, WordsThatTheirRelationDoesNotBearOutAreFound) {
  const std::vector<Table>& tables = small_study().tables;
  const auto wrong = [&](const char* words, Basis basis, const char* formula) {
    return !wrong_claims(Text(Piece{words, basis, formula}), tables).empty();
  };
  constexpr const char* kMore = "max(validity[1-2].row) > 3";
  EXPECT_TRUE(wrong("It grows.", Basis::kRelation, kMore)) << "there is no such column";
  EXPECT_TRUE(
      wrong("It grows.", Basis::kRelation, "accumulation[1].count > accumulation[1].count"));
  EXPECT_FALSE(wrong("It is large.", Basis::kRelation, "accumulation[1].count > 3"));
  EXPECT_TRUE(wrong("It is small.", Basis::kRelation, "accumulation[1].count < 3"));
  EXPECT_TRUE(wrong("1001", Basis::kFigure, "accumulation[1].count"));
  EXPECT_TRUE(wrong("1,000 ms", Basis::kFigure, "accumulation[1].count"));
  EXPECT_FALSE(wrong("1,000", Basis::kFigure, "accumulation[1].count"));
  EXPECT_TRUE(wrong("It has 3 parts", Basis::kNone, ""));
  EXPECT_TRUE(wrong("f64", Basis::kQuote, "formats[2].format"));
}

}  // namespace
}  // namespace tracestep
