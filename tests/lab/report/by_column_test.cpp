// A page's data by column become the result again, member by member.
#include "lab/report/by_column.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tracestep {
namespace {

Json parsed(const std::string& text) {
  return Json::parse(text, "test");
}

TEST(ByColumnTest, TheRowsComeBackWithTheirMembersInOrder) {
  const Json result = parsed(
      R"({"schema":"s","table":"a","rows":[{"n":-5,"x":1.5,"t":"u"},{"n":7,"x":null,"t":"v"}],"tables":{)"
      R"("a":{"title":"A","rows":[{"n":-5,"x":1.5,"t":"u"},{"n":7,"x":null,"t":"v"}],"notes":["k"]},)"
      R"("empty":{"rows":[]},"mixed":{"rows":[{"a":1},{"b":2}]},"one":{"rows":[{"l":[1,2],"o":{"k":1}}]},)"
      R"("large":{"rows":[{"n":9223372036854775807},{"n":-9223372036854775807}]}}})");
  const Json packed = by_column(result);
  EXPECT_EQ(packed.at("rows"), Json()) << "those of the main table are there once";
  EXPECT_EQ(packed.at("tables").at("a").at("rows").at("cells").at("n").dump(),
            R"({"steps":[-5,12]})");
  EXPECT_EQ(packed.at("tables").at("mixed"), result.at("tables").at("mixed"));
  EXPECT_EQ(by_row(packed).dump(), result.dump());
  EXPECT_EQ(by_row(result).dump(), result.dump()) << "a page of an earlier version has rows";
}

TEST(ByColumnTest, AResultOfOneTableHasItsRowsAtTheTop) {
  const Json result = parsed(R"({"schema":"s","table":"a","rows":[{"n":1},{"n":2}]})");
  EXPECT_EQ(by_row(by_column(result)).dump(), result.dump());
}

TEST(ByColumnTest, WhatIsDamagedIsAnErrorOrHasEmptyCells) {
  const auto with = [](const std::string& cells) {
    return parsed(R"({"rows":{"cells":)" + cells + "}}");
  };
  EXPECT_EQ(by_row(with(R"({"a":[1,2],"b":[3]})")).dump(),
            R"({"rows":[{"a":1,"b":3},{"a":2,"b":null}]})");
  for (const char* cells : {R"({"a":{"steps":["x"]}})", R"({"a":{}})", R"({"a":3})", "[]"}) {
    EXPECT_THROW(by_row(with(cells)), Error) << cells;
  }
  EXPECT_NO_THROW(by_row(with(R"({"a":{"steps":[9223372036854775807,9223372036854775807,1]}})")));
}

}  // namespace
}  // namespace tracestep
