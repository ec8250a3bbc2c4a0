// Lies that someone might write into a template, and whether the checker of answers finds each.
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/measure/noise.h"
#include "lab/report/evidence.h"
#include "lab/study/claims.h"

namespace tracestep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::wrong_claims;

std::vector<Table> two_cells() {
  Table table{.name = "cells",
              .columns = {{.name = "size"},
                          {.name = "samples_ms", .kind = ColumnKind::kReals},
                          {.name = "peak_bytes", .kind = ColumnKind::kBytes},
                          {.name = "share_percent", .kind = ColumnKind::kReal},
                          {.name = "launches", .kind = ColumnKind::kInt},
                          {.name = "source"}}};
  const std::string line(200, '-');
  table.add_row({"tiny", Json::Array{2.0, 2.0, 2.0}, 1536, 40.0, 12, line});
  table.add_row({"small", Json::Array{6.0, 6.0, 6.0}, 4096, 0.001, 20, line});
  return {table};
}

std::vector<std::string> wrong_in(const std::function<Text(const Evidence&)>& template_of) {
  const std::vector<Table> tables = two_cells();
  return wrong_claims(template_of(Evidence(tables)), tables);
}

Text figure(const char* printed, const char* formula) {
  return Text(Piece{printed, Basis::kFigure, formula});
}

TEST(LiesTest, AnHonestTemplatePasses) {
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

TEST(LiesTest, ANumberOrATrendWithoutItsRowIsFound) {
  EXPECT_THAT(wrong_in([](const Evidence&) { return Text("a step takes 6 ms"); }),
              ElementsAre(HasSubstr("a number without a formula")));
  EXPECT_THAT(wrong_in([](const Evidence&) { return Text("float32 is slower"); }),
              ElementsAre(HasSubstr("\"slower\" without a relation")));
  EXPECT_THAT(wrong_in([](const Evidence&) { return Text("it takes twice as long"); }),
              ElementsAre(HasSubstr("\"twice\" without a relation")));
}

TEST(LiesTest, AFigureThatIsNotItsFormulaIsFound) {
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

TEST(LiesTest, AComparisonThatDoesNotHoldOrSaysTheOppositeIsFound) {
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

TEST(LiesTest, AQuotationThatIsNotTheCellIsFound) {
  const auto quoted = [](const char* text) {
    return wrong_in([&](const Evidence&) {
      return Text(Piece{text, Basis::kQuote, "cells[1].size"});
    });
  };
  EXPECT_THAT(quoted("tiny"), IsEmpty());
  EXPECT_THAT(quoted("small"), ElementsAre(HasSubstr("not what the cell says")));
}

// --- one lie each
// ---------------------------------------------------------------------------------

std::vector<std::string> wrong_text(const std::vector<Piece>& pieces) {
  return wrong_in([&](const Evidence&) {
    Text out;
    for (const Piece& piece : pieces) out += Text(piece);
    return out;
  });
}
Piece words(const char* text) {
  return {text};
}
Piece relation(const char* text, const char* formula) {
  return {text, Basis::kRelation, formula};
}
Piece quote(const char* text, const char* formula) {
  return {text, Basis::kQuote, formula};
}
Piece number(const char* printed, const char* formula) {
  return {printed, Basis::kFigure, formula};
}

const Piece kTiny = quote("tiny", "cells[1].size"), kSmall = quote("small", "cells[2].size");
constexpr const char* kLess = "cells[1].peak_bytes < cells[2].peak_bytes";
constexpr const char* kShorter = "median(cells[1].samples_ms) < median(cells[2].samples_ms)";
constexpr const char* kRatio = "(median(cells[2].samples_ms) / median(cells[1].samples_ms))";

struct Lie {
  std::vector<Piece> pieces;
  const char* found;
};

void expect_found(std::initializer_list<Lie> lies) {
  for (const Lie& lie : lies) {
    std::string text;
    for (const Piece& piece : lie.pieces) text += piece.words;
    EXPECT_THAT(wrong_text(lie.pieces), ElementsAre(HasSubstr(lie.found))) << text;
  }
}

TEST(LiesTest, NumbersInLettersAndFractionsAreNumbers) {
  expect_found({{{words("it takes three steps")}, "a number without a formula"},
                {{words("it takes ½ of the time")}, "a number without a formula"},
                {{words("the time doubles")}, "\"doubles\" without a relation"},
                {{relation("five times", kLess)}, "does not say \"five times\""},
                {{relation("a hundred bytes less", kLess)}, "has a number of its own"}});
}

TEST(LiesTest, ComparativesOfAllKindsNeedTheirRelation) {
  expect_found({{{words("flash is quicker")}, "\"quicker\" without a relation"},
                {{words("it takes other ways than that")}, "\"than\" without a relation"},
                {{relation("it shrinks", "cells[2].peak_bytes > cells[1].peak_bytes")},
                 "does not say \"shrinks\""},
                {{relation("it is not less", kLess)}, "negates \"less\""},
                {{words("Whether it rains or not, it is slower.")}, "\"slower\" without"}});
}

TEST(LiesTest, BytesAreNotFasterAndALargestIsOneOfAList) {
  expect_found({{{relation("it is faster", kLess)}, "does not say \"faster\""},
                {{relation("the largest", "cells[1].peak_bytes = cells[1].peak_bytes")},
                 "compares a thing with itself"},
                {{relation("the largest", "cells[1].peak_bytes = min(cells[1-2].peak_bytes)")},
                 "does not say \"largest\""},
                {{relation("the smallest", "cells[2].peak_bytes = max(cells[1-2].peak_bytes)")},
                 "does not say \"smallest\""}});
  EXPECT_THAT(
      wrong_text({relation("the largest", "cells[2].peak_bytes = max(cells[1-2].peak_bytes)")}),
      IsEmpty());
}

TEST(LiesTest, ARelationComparesCellsAndMindsTheirNoise) {
  expect_found(
      {{{relation("it is slower", "2 > 1")}, "compares no cell"},
       {{relation("it is slower", "max(cells[2].samples_ms) > min(cells[1].samples_ms)")},
        "compares times without their noise"},
       {{relation("about the same", "(cells[2].peak_bytes / cells[1].peak_bytes) in [0.1, 9]")},
        "does not say \"about\""}});
}

TEST(LiesTest, UnitsAndNounsBehindAFigureAreItsFormulas) {
  expect_found(
      {{{number("12", "cells[1].launches"), words(" ms")}, "a unit of its own: ms"},
       {{number("12", "cells[1].launches"), words(" samples")}, "not of samples"},
       {{number("40.0 %", "cells[1].share_percent"), words(" launches")}, "not of launches"},
       {{number("2.67", "(cells[2].peak_bytes / cells[1].peak_bytes)"), words(" times the FLOPs")},
        "not of times the FLOPs"}});
  EXPECT_THAT(wrong_text({number("12", "cells[1].launches"), words(" launches")}), IsEmpty());
}

TEST(LiesTest, PercentAndRatiosAreNotMixed) {
  expect_found(
      {{{number("3.0 %", kRatio)}, "percent of what is a ratio"},
       {{number("40.0", "cells[1].share_percent"), words(" times")}, "a ratio of what is percent"},
       {{number("41.0 %", "(cells[1].share_percent + (cells[1].launches / cells[1].launches))")},
        "percent and a ratio are added"},
       {{number("0.00 %", "cells[2].share_percent")}, "nothing, where its formula gives"}});
  const std::string hundredfold = std::string("(100 * ") + kRatio + ")";
  EXPECT_THAT(wrong_text({number("300.0 %", hundredfold.c_str())}), IsEmpty());
  EXPECT_THAT(wrong_text({number("0.001 %", "cells[2].share_percent")}), IsEmpty());
}

TEST(LiesTest, ALabelStandsOverItsOwnRows) {
  expect_found({{{kTiny, words(": it takes "), number("6.000 ms", "median(cells[2].samples_ms)")},
                 "of small, under the label of tiny"},
                {{kTiny, words(": "), relation("it is more", "cells[2].peak_bytes > 0")},
                 "of small, under the label of tiny"}});
  EXPECT_THAT(wrong_text({kTiny, words(": it takes "),
                          number("2.000 ms", "median(cells[1].samples_ms)"), words("; "), kSmall,
                          words(": "), number("6.000 ms", "median(cells[2].samples_ms)")}),
              IsEmpty());
}

TEST(LiesTest, SwappedSidesAreFound) {
  const Piece three = number("3.00", kRatio);
  expect_found(
      {{{kTiny, words(" takes "), three, words(" times as long as "), kSmall},
        "a ratio upside down"},
       {{kSmall, words(" takes "), three, relation(" times as fast as ", kShorter), kTiny},
        "a ratio upside down"},
       {{words("From "), kSmall, words(" to "), kTiny, words(" it takes "), three,
         words(" times as long.")},
        "a ratio upside down"},
       {{kSmall, relation(" is faster than ", kShorter), kTiny}, "compared with another row"}});
  EXPECT_THAT(wrong_text({words("From "), kTiny, words(" to "), kSmall, words(" it takes "), three,
                          words(" times as long.")}),
              IsEmpty());
  EXPECT_THAT(wrong_text({kTiny, relation(" is faster than ", kShorter), kSmall}), IsEmpty());
}

TEST(LiesTest, AQuotationKeepsMostOfALongText) {
  const std::string shortened = std::string(48, '-') + " ... " + std::string(47, '-');
  EXPECT_THAT(wrong_text({quote(shortened.c_str(), "cells[1].source")}), IsEmpty());
  expect_found({{{quote("- ... -", "cells[1].source")}, "quotes too little"},
                {{quote(" ... ", "cells[1].source")}, "quotes too little"}});
}

TEST(LiesTest, AReasonForNoAnswerIsChecked) {
  const auto refused = [](const char* reason) {
    return wrong_text({words("No answer: "), quote(reason, ""), words(".")});
  };
  for (const char* fair : {"this run has no table kinds", "the table cells has no column verdict",
                           "the table cells has no row with size tiny, launches 20",
                           "samples_ms of cells is no number"}) {
    EXPECT_THAT(refused(fair), IsEmpty()) << fair;
  }
  for (const char* lie : {"this run has no table cells", "the table cells is empty",
                          "the table cells has no column launches",
                          "the table cells has no row with size tiny, launches 12",
                          "the column launches of the table cells is empty where it is needed",
                          "launches of cells is no whole number", "samples_ms of cells is empty"}) {
    EXPECT_THAT(refused(lie), ElementsAre(HasSubstr("what it misses is there"))) << lie;
  }
  EXPECT_THAT(refused("float32 is slower"), ElementsAre(HasSubstr("nobody can check")));
}

}  // namespace
}  // namespace tracestep
