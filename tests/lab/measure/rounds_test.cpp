// Rounds: which cells belong to them, in which order they are visited, and what drifts and
// neighbours do to the pairs that come of them.
#include "lab/measure/rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "lab/measure/comparison.h"

namespace tracestep {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

using Visits = std::vector<std::vector<std::size_t>>;  // of each round

Visits visited(std::size_t cells, const RoundLimits& limits) {
  Visits out;
  const std::vector<double> seconds(cells, 1e-3);
  run_rounds(seconds, limits, [&](std::size_t cell, int round) {
    out.resize(static_cast<std::size_t>(round) + 1);
    out.back().push_back(cell);
    return true;
  });
  return out;
}

TEST(RoundsTest, EachVisitsEveryCellOnceInAnOrderOfItsOwn) {
  const Visits rounds = visited(4, {.least = 6, .most = 6, .seed = 3});
  ASSERT_EQ(rounds.size(), 6u);
  EXPECT_THAT(rounds, Each(UnorderedElementsAre(0, 1, 2, 3)));
  EXPECT_NE(rounds[0], rounds[1]);
  EXPECT_EQ(rounds, visited(4, {.least = 6, .most = 6, .seed = 3}));
  EXPECT_NE(rounds, visited(4, {.least = 6, .most = 6, .seed = 4}));
}

TEST(RoundsTest, EachCellIsFirstInAboutAsManyRounds) {
  const Visits rounds = visited(4, {.least = 4000, .most = 4000});
  std::vector<int> first(4);
  for (const auto& round : rounds) ++first[round[0]];
  for (int count : first) EXPECT_NEAR(count, 1000, 120);
}

// The time of these tests passes where a visit says so.
std::int64_t test_clock_ns = 0;
std::int64_t test_clock() {
  return test_clock_ns;
}
void pass(double ms) {
  test_clock_ns += static_cast<std::int64_t>(ms * 1e6);
}

TEST(RoundsTest, WhenTimeIsShortTheLastCellsGoAndRoundsStayThree) {
  std::vector<int> visits(4);
  const std::vector<double> weights{1.0, 2.0, 100.0, 1.0};
  const std::vector<bool> kept =
      run_rounds(weights, {.seconds = 0.1, .clock = test_clock}, [&](std::size_t cell, int) {
        pass(5.0 * weights[cell]);
        return ++visits[cell];
      });
  EXPECT_THAT(kept, ElementsAre(true, true, false, true));
  EXPECT_EQ(visits[2], 0) << "its weight says that it takes half a second";
  EXPECT_THAT(visits, ElementsAre(5, 5, 0, 5));
}

TEST(RoundsTest, WhatAHeadlineComparesIsInSixRoundsWhereHalfOfTheTimeIsEnough) {
  const auto visits_in = [](double seconds) {
    std::vector<int> visits(8);
    const std::vector<double> weights(8, 1.0);
    run_rounds(weights, {.seconds = seconds, .leads = 2, .clock = test_clock},
               [&](std::size_t cell, int) {
                 pass(5.0);
                 return ++visits[cell];
               });
    return visits;
  };
  const std::vector<int> long_enough = visits_in(0.17);  // 60 ms of it are six visits of two leads
  EXPECT_EQ(long_enough[0], 6);
  EXPECT_EQ(long_enough[1], 6);
  EXPECT_GE(long_enough[2], 3);
  const std::vector<int> short_of_time = visits_in(0.08);
  EXPECT_GE(short_of_time[0], 3);
  EXPECT_GE(short_of_time[1], 3);
  EXPECT_GE(short_of_time[2], 3) << "three rounds of others matter more than six of leads";
}

TEST(RoundsTest, WhatAHeadlineComparesEndsWithTheTimeWhereLaterVisitsTakeLonger) {
  std::vector<int> visits(4);
  const std::vector<double> weights(4, 1.0);
  run_rounds(weights, {.seconds = 0.2, .leads = 2, .clock = test_clock},
             [&](std::size_t cell, int round) {
               pass(round == 0 ? 5.0 : 30.0);  // other work begins
               return ++visits[cell];
             });
  EXPECT_THAT(visits, ElementsAre(3, 3, 3, 3));
}

TEST(RoundsTest, ACellThatTakesMoreThanItsWeightSaidGoesAfterTheFirstRound) {
  std::vector<int> visits(3);
  const std::vector<double> weights{1.0, 1.0, 1.0}, ms{5.0, 5.0, 100.0};
  const std::vector<bool> kept =
      run_rounds(weights, {.seconds = 0.1, .clock = test_clock}, [&](std::size_t cell, int) {
        pass(ms[cell]);
        return ++visits[cell];
      });
  EXPECT_THAT(kept, ElementsAre(true, true, true)) << "what was measured stays";
  EXPECT_EQ(visits[2], 1);
  EXPECT_GE(visits[0], 3);
}

TEST(RoundsTest, ACellWithoutTimeForAllRoundsIsVisitedOnceInWhatTheOthersLeave) {
  std::vector<std::pair<std::size_t, int>> order;
  const std::vector<double> weights{1.0, 1.0, 5.0, 9.0};
  const std::vector<bool> kept =
      run_rounds(weights, {.seconds = 0.07, .clock = test_clock}, [&](std::size_t cell, int round) {
        pass(5.0 * weights[cell]);
        order.emplace_back(cell, round);
        return true;
      });
  EXPECT_THAT(kept, ElementsAre(true, true, true, false)) << "30 ms of rounds, then 25 and not 45";
  ASSERT_GE(order.size(), 7u);
  EXPECT_EQ(order[6], std::pair(std::size_t{2}, 0)) << "behind three rounds of the others";
}

TEST(RoundsTest, WhereRoundsOfAFewWereAllThatFitsEachCellIsVisitedOnce) {
  const auto visits_in = [](double seconds, std::size_t leads) {
    std::vector<int> visits(8);
    const std::vector<double> weights(8, 1.0);
    run_rounds(weights, {.seconds = seconds, .leads = leads, .clock = test_clock},
               [&](std::size_t cell, int) {
                 pass(5.0);
                 return ++visits[cell];
               });
    return visits;
  };
  EXPECT_THAT(visits_in(0.05, 0), Each(1)) << "45 ms would be three rounds of three cells";
  EXPECT_THAT(visits_in(0.0501, 1), ElementsAre(3, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(visits_in(0.02, 0), ElementsAre(1, 1, 1, 1, 0, 0, 0, 0));
}

TEST(RoundsTest, AfterTheLeastTheyEndWithTheTime) {
  int rounds = 0;
  const std::vector<double> seconds{1e-3};
  const RoundLimits limits{.least = 3, .most = 1000, .seconds = 0.02, .clock = test_clock};
  run_rounds(seconds, limits, [&](std::size_t, int round) {
    pass(5.0);
    rounds = round + 1;
    return true;
  });
  EXPECT_EQ(rounds, 4);
}

TEST(RoundsTest, ACellThatFailsIsNotVisitedAgain) {
  std::vector<int> visits(2);
  const std::vector<double> seconds{1e-3, 1e-3};
  run_rounds(seconds, {.least = 3, .most = 3}, [&](std::size_t cell, int) {
    ++visits[cell];
    return cell == 0;
  });
  EXPECT_THAT(visits, ElementsAre(3, 1));
}

// A machine that is half as fast now and then, and whose processes differ by a per cent.
TEST(RoundsTest, PairsShowADifferenceThatTheMachineHides) {
  int found = 0, wrong = 0;
  constexpr int kMachines = 200;
  for (int machine = 0; machine < kMachines; ++machine) {
    const CounterRng rng(static_cast<std::uint64_t>(machine), "machine");
    ProcessSamples fast(6), slow(6), same(6);
    for (std::size_t round = 0; round < 6; ++round) {
      const double speed = rng.uniform(round) < 0.5 ? 1.0 : 0.5;
      const auto ms = [&](std::uint64_t cell, double own) {
        return own / speed * (1 + 0.01 * (2 * rng.uniform(100 + 10 * round + cell) - 1));
      };
      fast[round] = {ms(0, 10.0)};
      slow[round] = {ms(1, 12.0)};
      same[round] = {ms(2, 10.0)};
    }
    found += compare_visits(fast, slow).change == Change::kSlower;
    wrong += compare_visits(fast, same).change != Change::kSame;
  }
  EXPECT_EQ(found, kMachines);
  EXPECT_EQ(wrong, 0);
}

TEST(RoundsTest, CountersLeaveOutWhatLiesBetweenVisits) {
  HostAround host{.before = {.busy_s = 10.0, .own_s = 1.0, .at_s = 0},
                  .after = {.busy_s = 12.0, .own_s = 2.0, .at_s = 1}};
  // Between them another cell kept both cores busy for 98 seconds.
  const HostAround later{.before = {.busy_s = 210.0, .own_s = 100.0, .at_s = 99},
                         .after = {.busy_s = 211.5, .own_s = 101.0, .at_s = 100}};
  join_visits(host, later);
  EXPECT_NEAR(others_cores(host.before, host.after).value(), (1.0 + 0.5) / 2, 1e-9);
}

}  // namespace
}  // namespace tracestep
