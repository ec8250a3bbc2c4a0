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
using ::testing::ElementsAre;
using ::testing::HasSubstr;
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
    std::set<std::string> texts;
    for (std::uint64_t i = 0; i < kTables; ++i) {
      std::vector<Table> tables = own;
      disturb(tables, whole.rows, first + i);
      const Answer a = answer(question, tables);
      const std::vector<std::string> wrong = wrong_claims(a.text, tables);
      if (!wrong.empty()) {
        ADD_FAILURE() << a.id << ", seed " << first + i << ": " << a.text.words()
                      << lines_of(wrong);
        break;
      }
      if (!a.refused) texts.insert(a.text.words());
    }
    EXPECT_GT(texts.size(), 1u) << question.id << " says too little to be tried";
  }
}

// --- planted lies --------------------------------------------------------------------------------

std::vector<Table> two_cells() {
  Table table{.name = "cells",
              .columns = {{.name = "size"},
                          {.name = "samples_ms", .kind = ColumnKind::kReals},
                          {.name = "peak_bytes", .kind = ColumnKind::kBytes}}};
  table.add_row({"tiny", Json::Array{2.0, 2.0, 2.0}, 1536});
  table.add_row({"small", Json::Array{6.0, 6.0, 6.0}, 4096});
  return {table};
}

std::vector<std::string> wrong_in(const std::function<Text(const Evidence&)>& template_of) {
  const std::vector<Table> tables = two_cells();
  return wrong_claims(template_of(Evidence(tables)), tables);
}

Text figure(const char* printed, const char* formula) {
  return Text(Piece{printed, Basis::kFigure, formula});
}

TEST(ClaimsTest, AnHonestTemplatePasses) {
  EXPECT_THAT(
      wrong_in([](const Evidence& e) {
        const auto a = e.row("cells", {{"size", "tiny"}}), b = e.row("cells", {{"size", "small"}});
        const Quantity ratio = median_in(b, "samples_ms") / median_in(a, "samples_ms");
        return say("{} takes {} times as long as {}, {}, with {}. ",
                   {b.quote("size"), decimal(ratio), a.quote("size"),
                    duration(median_in(b, "samples_ms")), bytes(a.get("peak_bytes"))}) +
               compare(median_in(b, "samples_ms"), median_in(a, "samples_ms"))
                   .say({.less = "It is faster.", .more = "It is slower."}) +
               compare_with_range(ratio, 2.5, 3.5).say({.equal = " About three times."});
      }),
      IsEmpty());
}

TEST(ClaimsTest, ANumberOrATrendWithoutItsRowIsFound) {
  EXPECT_THAT(wrong_in([](const Evidence&) { return Text("a step takes 6 ms"); }),
              ElementsAre(HasSubstr("a number without a formula")));
  EXPECT_THAT(wrong_in([](const Evidence&) { return Text("float32 is slower"); }),
              ElementsAre(HasSubstr("\"slower\" without a relation")));
  EXPECT_THAT(wrong_in([](const Evidence&) { return Text("it takes twice as long"); }),
              ElementsAre(HasSubstr("\"twice\" without a relation")));
}

TEST(ClaimsTest, AFigureThatIsNotItsFormulaIsFound) {
  const char* const median = "median(cells[2].samples_ms)";
  EXPECT_THAT(wrong_in([&](const Evidence&) { return figure("6.000 ms", median); }), IsEmpty());
  EXPECT_THAT(wrong_in([&](const Evidence&) { return figure("6.001 ms", median); }),
              ElementsAre(HasSubstr("its formula gives 6.0")));
  EXPECT_THAT(wrong_in([&](const Evidence&) { return figure("6.00 s", median); }),
              ElementsAre(HasSubstr("its formula gives")));
  EXPECT_THAT(wrong_in([&](const Evidence&) { return figure("6.00 B", median); }),
              ElementsAre(HasSubstr("another unit")));
  EXPECT_THAT(wrong_in([&](const Evidence&) { return figure("6", median); }),
              ElementsAre(HasSubstr("another unit")));
  EXPECT_THAT(wrong_in([&](const Evidence&) { return figure("6.000 ms", "cells[9].peak_bytes"); }),
              ElementsAre(HasSubstr("no such row")));
  EXPECT_THAT(wrong_in([&](const Evidence&) {
                return figure("1.00", "(cells[1].peak_bytes + median(cells[1].samples_ms))");
              }),
              ElementsAre(HasSubstr("unlike units")));
}

TEST(ClaimsTest, AComparisonThatDoesNotHoldOrSaysTheOppositeIsFound) {
  const auto words = [](const char* text, const char* formula) {
    return wrong_in([&](const Evidence&) { return Text(Piece{text, Basis::kRelation, formula}); });
  };
  const char* const less = "cells[1].peak_bytes < cells[2].peak_bytes";
  EXPECT_THAT(words("it takes less", less), IsEmpty());
  EXPECT_THAT(words("it takes more", less), ElementsAre(HasSubstr("does not say \"more\"")));
  EXPECT_THAT(words("it takes as much", less), ElementsAre(HasSubstr("does not say \"as much\"")));
  EXPECT_THAT(words("it takes 3 KiB less", less), ElementsAre(HasSubstr("a number of its own")));
  EXPECT_THAT(words("it takes more", "cells[1].peak_bytes > cells[2].peak_bytes"),
              ElementsAre(HasSubstr("does not hold")));
  EXPECT_THAT(
      words("about three times", "(cells[2].peak_bytes / cells[1].peak_bytes) in [2.5, 3.5]"),
      IsEmpty());
  EXPECT_THAT(words("about twice", "(cells[2].peak_bytes / cells[1].peak_bytes) in [2.5, 3.5]"),
              ElementsAre(HasSubstr("does not say \"twice\"")));
}

TEST(ClaimsTest, AQuotationThatIsNotTheCellIsFound) {
  const auto quoted = [](const char* text) {
    return wrong_in([&](const Evidence&) {
      return Text(Piece{text, Basis::kQuote, "cells[1].size"});
    });
  };
  EXPECT_THAT(quoted("tiny"), IsEmpty());
  EXPECT_THAT(quoted("small"), ElementsAre(HasSubstr("not what the cell says")));
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
