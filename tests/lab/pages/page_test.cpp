// Pages: what is said in each outcome, what is left out, and what a page may not contain.
#include "lab/pages/compose.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/pages/figures.h"
#include "lab/report/columns.h"

namespace tracestep::pages {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr std::string_view kPage = R"(# growth | 1.2 a | Time
Question: Does it grow?
$ bench --mode step
- last: most context of t[mode step; status ok]
- half: t[mode step; context last.context / 2]
- steps: all t[mode step; status ok] by -context
- over half (factor): ratio = last.ms / half.ms
? ratio with 1.9 to 2.1
less: From {half.ms} to {last.ms}: less.
equal: From {half.ms} to {last.ms}: as {name}.
more: No answer: it explodes
? name: last.bytes with half.bytes
equal: bytes stay
more: bytes grow
Or: There is {last.ms} alone.
Then: Its peak is {last.bytes},
  and {last.rank} its rank.
Each s of steps, other t[mode forward; context s.context]:
| context | ms | forward |
| {s.context} | {s.ms} | {other.ms} |
)";

std::vector<Table> tables() {
  Table t{.name = "t",
          .columns = {text_column("mode"), int_column("context"), real_column("ms", "", "ms", 1),
                      bytes_column("bytes"), text_column("status"), int_column("rank")}};
  t.add_row({"step", 64, 5.0, 1024, "ok", 7});
  t.add_row({"step", 128, 10.0, 1024, "ok", Json()});
  t.add_row({"step", 256, Json(), Json(), "oom", Json()});
  t.add_row({"forward", 128, 3.0, 512, "ok", Json()});
  return {t};
}

Composed composed(std::span<const Table> tables, std::string_view page = kPage) {
  const std::vector<Page> pages = parse(page);
  return compose(pages.at(0), Evidence(tables));
}

Text text_of(const Composed& c) {
  return c.more.empty() ? c.lead : c.lead + Text(" ") + c.more;
}

TEST(PageTest, AnOutcomeIsChosenByItsFiguresAndRestsOnThem) {
  std::vector<Table> t = tables();
  const Composed equal = composed(t);
  EXPECT_EQ(text_of(equal).words(), "From 5.000 ms to 10.00 ms: as bytes stay.");
  std::vector<std::string> formulas;
  const Text said = text_of(equal);
  for (const Piece& piece : said.pieces()) formulas.push_back(piece.formula);
  EXPECT_THAT(formulas, ::testing::Contains("(t[2].ms / t[1].ms) in [1.9, 2.1]"));
  EXPECT_THAT(formulas, ::testing::Contains("t[2].bytes = t[1].bytes"));
  t[0].rows[0][2] = 8.0;
  EXPECT_EQ(text_of(composed(t)).words(), "From 8.000 ms to 10.00 ms: less.");
  t[0].rows[0][2] = 1.0;
  EXPECT_THROW(composed(t), Unsupported) << "the page says that there is no answer";
}

TEST(PageTest, AnAnswerWithoutItsRowsGivesWayAndALaterSentenceIsLeftOut) {
  std::vector<Table> t = tables();
  EXPECT_THAT(text_of(composed(t)).words(), ::testing::Not(HasSubstr("rank")));
  t[0].rows[1][5] = 3;
  EXPECT_THAT(text_of(composed(t)).words(), HasSubstr(" Its peak is 1.00 KiB, and 3 its rank."));
  t[0].rows.erase(t[0].rows.begin());
  EXPECT_THAT(text_of(composed(t)).words(), HasSubstr("There is 10.00 ms alone."));
  t[0].rows.clear();
  try {
    composed(t);
    FAIL();
  } catch (const Unsupported& missing) {
    EXPECT_THAT(missing.what(), HasSubstr("measured nothing with"));
  }
}

TEST(PageTest, ALineStandsForEachRowThatHasItsCells) {
  const Composed found = composed(tables());
  ASSERT_EQ(found.lines.size(), 2u) << "context 64 has no forward";
  std::vector<std::string> cells;
  for (const Text& cell : found.lines[1]) cells.push_back(cell.words());
  EXPECT_THAT(cells, ElementsAre("128", "10.00 ms", "3.000 ms"));
  EXPECT_EQ(found.lines[1][2].pieces()[0].formula, "t[4].ms");
  for (const RowRef& ref : found.rows) EXPECT_NE(ref.row, 3u) << "the text does not rest on it";
}

TEST(PageTest, EveryTableAndColumnThatItNamesIsFound) {
  const auto names = names_in(parse(kPage).at(0));
  for (const char* column : {"", "mode", "context", "status", "ms", "bytes", "rank"}) {
    EXPECT_THAT(names, ::testing::Contains(Pair("t", column)));
  }
}

TEST(PageTest, ASentenceThatNothingChoseHasNeitherNumbersNorComparisons) {
  const auto page = [](const std::string& line) { return "# a | | b\n" + line + "\n"; };
  EXPECT_NO_THROW(parse(page("Answer: In float32 it has {t.ms}.")));
  EXPECT_THROW(parse(page("Answer: It has 3 parts.")), std::exception);
  EXPECT_THROW(parse(page("Then: It is longer than {t.ms}.")), std::exception);
  EXPECT_THROW(parse(page("less: It is shorter.")), std::exception) << "of no comparison";
  EXPECT_NO_THROW(parse(page("? t.ms with 3\nless: It is shorter than that.")));
  EXPECT_THROW(parse(page("? t.ms with 3\nless: It is shorter than 3.")), std::exception);
  EXPECT_THROW(parse(page("Answer: {t.ms")), std::exception);
}

TEST(PageTest, FiguresAreShownInTheirUnits) {
  const auto words = [](double value, std::string_view unit) {
    return shown(Quantity::constant(value), unit).words();
  };
  EXPECT_EQ(words(1536, "bytes"), "1.50 KiB");
  EXPECT_EQ(words(12.34, "ms"), "12.34 ms");
  EXPECT_EQ(words(1.4567, "factor"), "1.46");
  EXPECT_EQ(words(1.0123, "factor"), "1.012");
  EXPECT_EQ(words(2, "+percent"), "+2.0 %");
  EXPECT_EQ(words(1234567, "count"), "1,234,567");
  EXPECT_EQ(words(0.00512, ".2g"), "0.0051");
  const Quantity mean = plus_minus(Quantity::constant(25.43), Quantity::constant(0.91));
  EXPECT_EQ(shown(mean, "± ms").words(), "25.43 ± 0.91 ms");
  EXPECT_EQ(shown(plus_minus(Quantity::constant(2540), Quantity::constant(91)), "± ms").words(),
            "2.540 ± 0.091 s");
  const auto band = [](double value, double low, double high) {
    return shown({value, low, high, "f"}, "ms band").words();
  };
  EXPECT_EQ(band(43.2, 28.1, 64.4), "43 ms (28 to 64)");
  EXPECT_EQ(band(29801, 17021, 51000), "30 s (17 to 51)");
  EXPECT_EQ(band(1.234, 0.9, 1.51), "1.2 ms (0.9 to 1.5)");
  const auto factor = [&](double value, double low, double high) {
    return shown({value, low, high, "f"}, "± factor").words();
  };
  EXPECT_EQ(factor(1.5812, 1.49, 1.62), "1.58 (95 %: 1.49 to 1.62)");
  EXPECT_EQ(factor(1.0012, 0.997, 1.004), "1.001 (95 %: 0.997 to 1.004)");
  EXPECT_EQ(factor(2, 2, 2), "2.00");
  EXPECT_EQ(factor(2, -HUGE_VAL, HUGE_VAL), "2.00") << "nothing is known of its noise";
}

}  // namespace
}  // namespace tracestep::pages
