// Pages of explain: what stands in them, what is left out, and what must be there.
#include "lab/explain/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tracestep {
namespace {

using ::testing::ElementsAre;

constexpr std::string_view kPage = R"(# what is it?

| what | formula | with numbers | value |
|---|---|---|---|
| all of {name} | a·b | {a}·{b:.2f} | {all:bytes} |
| {?time} its time | | | {time:ms} |
| {part.name} | | of {name} | {part.share:ratio} |
| {part.name}, twice | | | {part.share} |

a note on {name}
that goes on

{?time} it took a while

Traps:

- one
  and a half
- two
)";

Values values() {
  Values out;
  out.set("name", "this").set("a", 3).set("b", 2.5).set("all", 2048);
  out.add("part").set("name", "left").set("share", 0.25);
  out.add("part").set("name", "right").set("share", HUGE_VAL);
  return out;
}

std::vector<std::string> first_cells(const Table& table) {
  std::vector<std::string> out;
  for (const auto& row : table.rows) out.push_back(row[0].as_string());
  return out;
}

TEST(PageTest, LinesOfAListStandOnceForEachElement) {
  const Table table = fill(parse_page(kPage), values());
  EXPECT_THAT(first_cells(table),
              ElementsAre("all of this", "left", "left, twice", "right", "right, twice"));
  EXPECT_THAT(table.rows[0], ElementsAre(Json("all of this"), Json("a·b"), Json("3·2.50"),
                                         Json("2.00 KiB"), Json(2048.0), Json("B")));
  EXPECT_EQ(table.rows[1][2].as_string(), "of this");
  // An infinity is a word for people, and no number.
  EXPECT_EQ(table.rows[4][3].as_string(), "inf");
  EXPECT_EQ(table.rows[4][4].as_double(), 0);
}

TEST(PageTest, WhatHasAConditionIsThereWhenItsValueIs) {
  EXPECT_THAT(fill(parse_page(kPage), values()).notes, ElementsAre("a note on this that goes on"));
  const Table table = fill(parse_page(kPage), values().set("time", 1.5));
  EXPECT_EQ(table.rows[1][0].as_string(), "its time");
  EXPECT_EQ(table.rows[1][5].as_string(), "ms");
  EXPECT_THAT(table.notes, ElementsAre("a note on this that goes on", "it took a while"));
}

TEST(PageTest, TitleAndTrapsAreRead) {
  const Page page = parse_page(kPage);
  EXPECT_EQ(page.title, "what is it?");
  EXPECT_THAT(page.traps, ElementsAre("one and a half", "two"));
}

TEST(PageTest, AValueThatNobodySetIsAnError) {
  EXPECT_THROW(fill(parse_page(kPage), Values()), std::exception);
}

}  // namespace
}  // namespace tracestep
