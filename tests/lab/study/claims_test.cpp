// Laws of answers: whatever the tables hold, a printed text says only what they hold. And the
// checker that says so finds lies.
#include "lab/study/claims.h"

#include <algorithm>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/measure/noise.h"
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

// The tables that an answer reads, and those that it looks into.
std::vector<Table> tables_of(const Answer& answer) {
  std::set<std::string> names{"parts"};
  for (const RowRef& ref : answer.rows) names.insert(ref.table);
  std::vector<Table> out;
  for (const Table& table : small_study().tables) {
    if (names.contains(table.name)) out.push_back(table);
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
    EXPECT_THAT(wrong_claims(a.text, small_study().tables), IsEmpty())
        << a.id << ": " << a.text.words();
  }
}

// tools/soak/random_tables.py runs this test with many seeds: --gtest_shuffle gives a new one each
// time.
TEST(ClaimsTest, NoTablesMakeAnAnswerSayWhatTheyDoNotHold) {
  constexpr std::uint64_t kTables = 300;  // for each question
  const int round = GTEST_FLAG_GET(shuffle) ? ::testing::UnitTest::GetInstance()->random_seed() : 0;
  const auto first = static_cast<std::uint64_t>(round) * 1000003;
  for (const Question& question : all_questions()) {
    const Answer whole = answer(question, small_study().tables);
    const std::vector<Table> own = tables_of(whole);
    std::vector<Table> tables = own;
    std::set<std::string> texts;
    for (std::uint64_t i = 0; i < kTables; ++i) {
      const std::set<std::size_t> touched = disturb(tables, whole.rows, first + i);
      const Answer a = answer(question, tables);
      const std::vector<std::string> wrong = wrong_claims(a.text, tables);
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

TEST(ClaimsTest, ATemplateThatIsRightByChanceIsFoundByRandomTables) {
  // Says that backward takes twice forward whenever it is longer at all, as it is in the study.
  const Question liar{
      "liar", "T", "?", "tracestep bench", [](const Evidence& e) {
        const auto f = e.row("cells", {{"mode", "forward"}, {"size", "small"}}),
                   fb = e.row("cells", {{"mode", "forward-backward"}, {"size", "small"}});
        const Quantity ratio = median_in(fb, "samples_ms") / median_in(f, "samples_ms");
        return compare(ratio, Quantity::constant(2.5))
                   .say({.more = "It takes more than three times."}) +
               because({Ordering::kMore, ratio.formula + " > 1"}, " It is longer.");
      }};
  const Answer whole = answer(liar, small_study().tables);
  const std::vector<Table> own = tables_of(whole);
  std::size_t found = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::vector<Table> tables = own;
    disturb(tables, whole.rows, seed);
    found += wrong_claims(answer(liar, tables).text, tables).empty() ? 0 : 1;
  }
  EXPECT_GT(found, 5u);
}

}  // namespace
}  // namespace tracestep
