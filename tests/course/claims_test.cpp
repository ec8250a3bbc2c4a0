// Claims are found, their figures follow from published and computed ones, and altered figures
// change them.
#include "course/claims.h"

#include <gtest/gtest.h>

#include <set>

#include "course/claim_figures.h"
#include "course/data.h"
#include "lab/explain/explain.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

class PublishedClaimsTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static const Claim& claim(std::string_view row) { return *find_claims(row).front(); }

  // The value of the line `name` of a claim.
  static double value(std::string_view row, std::string_view name) {
    const Claim& c = claim(row);
    const Table table = derivation(c);
    for (std::size_t i = 0; i < c.lines.size(); ++i) {
      if (c.lines[i].name == name) return table.rows[i][4].as_double();
    }
    ADD_FAILURE() << row << " has no " << name;
    return NAN;
  }
};

TEST_F(PublishedClaimsTest, EveryRowOfTheStudyHasOneThatIsWhole) {
  std::set<std::string> rows, topic_names;
  for (const Topic& topic : topics()) topic_names.insert(std::string(topic.name));
  for (const Claim& c : claims()) {
    EXPECT_TRUE(rows.insert(c.row).second) << c.row;
    EXPECT_TRUE(topic_names.contains(c.topic)) << c.row << ": " << c.topic;
    EXPECT_FALSE(c.claimed.empty() || c.right.empty() || c.command.empty()) << c.row;
    const Table table = derivation(c);  // CHECKs that every figure is there
    EXPECT_EQ(table.rows.size(), c.lines.size()) << c.row;
    for (const std::string& note : table.notes) {
      EXPECT_EQ(note.find_first_of("{}"), std::string::npos) << note;
    }
  }
  for (int i = 1; i <= 42; ++i) EXPECT_TRUE(rows.contains(fmt::format("X{:02}", i))) << i;
  for (int i = 1; i <= 13; ++i) EXPECT_TRUE(rows.contains(fmt::format("Y{:02}", i))) << i;
}

// Worked out by hand from the write-ups, so that a wrong look-up or formula is seen.
TEST_F(PublishedClaimsTest, TheirFiguresAreThoseThatFollowFromTheWriteUps) {
  EXPECT_EQ(value("X01", "r32"), 10.000133514404297);
  EXPECT_EQ(value("X01", "r16"), 9.953125);
  EXPECT_EQ(value("X01", "rmix"), 10.00213623046875);
  EXPECT_EQ(value("X02", "b16"), 0.5);
  EXPECT_EQ(value("X02", "stall_bf"), 383);
  EXPECT_EQ(value("X02", "stall_f"), 3070);
  EXPECT_EQ(value("X03", "three"), 3406809600.0);
  EXPECT_EQ(value("X03", "two"), 2567948800.0);
  EXPECT_EQ(value("X03", "ten"), 12832823808.0);
  EXPECT_NEAR(value("X05", "up_to"), 45.8, 0.05);
  EXPECT_NEAR(value("X08", "b_most"), 75.04 / 10.9, 1e-12);
  EXPECT_NEAR(value("X09", "other"), 312.435, 1e-9);
  EXPECT_NEAR(value("X11", "large"), 2.0665, 1e-4);
  EXPECT_NEAR(value("X12", "work"), 27.59, 0.005);
  EXPECT_NEAR(value("X12", "xl"), 155.08 / 48, 1e-12);
  EXPECT_EQ(value("X14", "sum"), value("X14", "xl"));
  EXPECT_NEAR(value("X20", "full") / 1073741824.0, 5.19, 0.005);
  EXPECT_NEAR(value("X21", "r1024"), 55.75, 1e-9);
  EXPECT_NEAR(value("X22", "wrong"), value("X22", "printed"), 1e-6);
  EXPECT_NEAR(value("X29", "over_forward"), 186.2, 0.05);
  EXPECT_NEAR(value("X31", "five"), 10, 0.01);
  EXPECT_NEAR(value("X32", "static") / 1073741824.0, 50.77, 0.005);
  EXPECT_NEAR(value("X36", "share"), 27.3, 0.05);
  EXPECT_NEAR(value("X38", "rest"), 3.31, 1e-6);
  EXPECT_EQ(value("Y10", "stall"), 1000);
  EXPECT_EQ(value("Y10", "apart"), 0.0078125);
  EXPECT_NEAR(value("Y09", "copies") / 1073741824.0, 6.30, 0.005);
  EXPECT_NEAR(value("Y12", "share"), 1.36, 0.005);
  EXPECT_NEAR(value("Y13", "half"), 1.0014e-05, 1e-9);
  EXPECT_NEAR(value("X38", "block") / 1048576.0, 5699.31, 0.01);
}

TEST_F(PublishedClaimsTest, TheyAreFoundByRowTopicAndWords) {
  EXPECT_EQ(find_claims("").size(), claims().size());
  ASSERT_EQ(find_claims("x12").size(), 1u);
  EXPECT_EQ(find_claims("X12").front()->row, "X12");
  for (const Claim* c : find_claims("softmax")) EXPECT_EQ(c->topic, "softmax");
  const auto words = find_claims("graphs Two");
  EXPECT_TRUE(std::ranges::any_of(words, [](const Claim* c) { return c->row == "X10"; }));
  EXPECT_LT(words.size(), claims().size() / 2);
  EXPECT_TRUE(find_claims("no such words anywhere").empty());
}

TEST_F(PublishedClaimsTest, ATopicNamesItsClaims) {
  EXPECT_NE(claims_note("residual-stream").find("X27, X28"), std::string::npos);
  EXPECT_EQ(claims_note("no such topic"), "");
}

TEST(PublishedDataTest, AFigureIsThatOfTheOneRowWithTheseCells) {
  EXPECT_EQ(published::number_at("times", "ms", {"C", "all sizes", "forward", "xl"}), 155.08);
  EXPECT_EQ(
      published::number_at("allocations", "bf16_mib", {"B", "forward", "context=128", "einsum"}),
      50);
}

}  // namespace
}  // namespace tracestep
