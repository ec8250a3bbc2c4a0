// Which steps the study visits again in the time that is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/study/study.h"

namespace tracestep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Steps = std::set<std::string>;

const std::map<std::string, double> kSeconds = {{"a", 1}, {"b", 2}, {"c", 4}, {"d", 8}};

TEST(MoreRoundsTest, TheAnswersThatTakeLeastComeFirstAndAreTakenWhole) {
  const std::vector<Steps> wanted = {{"d"}, {"b", "c"}, {"a"}};
  EXPECT_THAT(cheapest_first(wanted, kSeconds, 0.5), IsEmpty());
  EXPECT_THAT(cheapest_first(wanted, kSeconds, 1), ElementsAre("a"));
  EXPECT_THAT(cheapest_first(wanted, kSeconds, 6.9), ElementsAre("a"))
      << "one of two steps would leave the answer as unsure";
  EXPECT_THAT(cheapest_first(wanted, kSeconds, 7), ElementsAre("a", "b", "c"));
  EXPECT_THAT(cheapest_first(wanted, kSeconds, 15), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(cheapest_first({}, kSeconds, 15), IsEmpty());
}

TEST(MoreRoundsTest, AStepOfSeveralAnswersIsPaidOnce) {
  // Once c is chosen, c and a take one second more, which is less than the two of b.
  const std::vector<Steps> wanted = {{"b", "d"}, {"c"}, {"a", "c"}};
  EXPECT_THAT(cheapest_first(wanted, kSeconds, 5), ElementsAre("a", "c"));
  EXPECT_THAT(cheapest_first(wanted, kSeconds, 14), ElementsAre("a", "c"));
  EXPECT_THAT(cheapest_first(wanted, kSeconds, 15), ElementsAre("a", "b", "c", "d"));
}

}  // namespace
}  // namespace tracestep
