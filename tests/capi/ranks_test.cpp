// Sessions that are ranks, connected by functions of the caller's: here threads of one process.
#include <barrier>
#include <cstring>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "capi/opened.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 2;

// What two threads say to each other.
class Meeting {
 public:
  struct End {
    Meeting* meeting;
    int rank;
  };
  tracestep_ranks of(End& end) const {
    return {.size = sizeof(tracestep_ranks),
            .rank = end.rank,
            .count = kRanks,
            .context = &end,
            .gather = gather,
            .sum = sum};
  }

 private:
  static int gather(void* context, const void* own, void* all, std::int64_t bytes) {
    const End& end = *static_cast<End*>(context);
    Meeting& m = *end.meeting;
    m.given_[end.rank] = own;
    m.barrier_.arrive_and_wait();
    for (int r = 0; r < kRanks; ++r) {
      std::memcpy(static_cast<std::byte*>(all) + r * bytes, m.given_[r],
                  static_cast<std::size_t>(bytes));
    }
    m.barrier_.arrive_and_wait();
    return 0;
  }
  static int sum(void* context, void* data, std::int64_t count, const char* dtype) {
    EXPECT_STREQ(dtype, "f32");
    std::vector<float> all(static_cast<std::size_t>(kRanks * count));
    gather(context, data, all.data(), count * 4);
    for (std::int64_t i = 0; i < count; ++i) {
      static_cast<float*>(data)[i] =
          all[static_cast<std::size_t>(i)] + all[static_cast<std::size_t>(count + i)];
    }
    return 0;
  }

  std::barrier<> barrier_{kRanks};
  const void* given_[kRanks] = {};
};

struct Trained {
  float loss = 0;
  std::vector<float> weights;
};

void load(tracestep_run* run) {
  ASSERT_EQ(tracestep_start(run), TRACESTEP_OK) << tracestep_message();
  ASSERT_EQ(tracestep_load(run), TRACESTEP_OK) << tracestep_message();
}

// Three steps of micro-batches `first`, `first` + 1, …, each of which begins `shift` further.
Trained trained(const Opened& opened, int parts, int first) {
  Trained out;
  std::vector<tracestep_run*> runs;
  for (int part = 0; part < parts; ++part) {
    const auto kind = parts == 1 ? TRACESTEP_STEP : part == 0 ? TRACESTEP_FIRST : TRACESTEP_NEXT;
    runs.push_back(part < 2 ? opened.plan(kind) : runs.back());
    if (part < 2) load(runs.back());
  }
  tracestep_run* update = runs.front();
  if (parts > 1) {
    update = opened.plan(TRACESTEP_UPDATE);
    EXPECT_EQ(tracestep_start(update), TRACESTEP_OK) << tracestep_message();
  }
  for (std::int64_t t = 1; t <= 3; ++t) {
    EXPECT_EQ(tracestep_rate(update, 0, 1e-2, t), TRACESTEP_OK) << tracestep_message();
    out.loss = 0;
    for (int part = 0; part < parts; ++part) {
      fill_inputs(runs[static_cast<std::size_t>(part)], first + part);
      out.loss += loss_of(runs[static_cast<std::size_t>(part)]);
    }
    if (parts > 1) {
      EXPECT_EQ(tracestep_go(update, nullptr), TRACESTEP_OK) << tracestep_message();
    }
  }
  out.weights = weights_of(runs.front());
  return out;
}

// The same by two ranks, each with its part of the micro-batches.
std::vector<Trained> by_ranks(int parts) {
  Meeting meeting;
  std::vector<Trained> out(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Meeting::End end{&meeting, rank};
      const tracestep_ranks ranks = meeting.of(end);
      const Opened opened("device=cpu threads=1", TRACESTEP_ADAMW, parts);
      ASSERT_EQ(tracestep_join(opened.session, &ranks), TRACESTEP_OK) << tracestep_message();
      out[static_cast<std::size_t>(rank)] = trained(opened, parts, rank * parts);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return out;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-5);
}

TEST(RanksTest, TwoRanksAreTwoMicroBatches) {
  const Trained alone = trained(Opened("device=cpu threads=1", TRACESTEP_ADAMW, 2), 2, 0);
  const std::vector<Trained> ranks = by_ranks(1);
  EXPECT_EQ(ranks[0].weights, ranks[1].weights);
  EXPECT_EQ(ranks[0].loss, ranks[1].loss);
  EXPECT_NEAR(ranks[0].loss, alone.loss, 1e-5);
  expect_near(ranks[0].weights, alone.weights);
}

TEST(RanksTest, MicroBatchesOfRanksAreSummedOnce) {
  const Trained alone = trained(Opened("device=cpu threads=1", TRACESTEP_ADAMW, 4), 4, 0);
  const std::vector<Trained> ranks = by_ranks(2);
  EXPECT_EQ(ranks[0].weights, ranks[1].weights);
  EXPECT_NEAR(ranks[0].loss + ranks[1].loss, alone.loss, 1e-5);  // each its own micro-batches
  expect_near(ranks[0].weights, alone.weights);
}

TEST(RanksTest, WhatTheCallersFunctionsSayEndsTheCall) {
  tracestep_ranks ranks{.size = sizeof ranks,
                        .rank = 0,
                        .count = 2,
                        .context = nullptr,
                        .gather =
                            [](void*, const void* own, void* all, std::int64_t bytes) {
                              for (int r = 0; r < 2; ++r) {
                                std::memcpy(static_cast<std::byte*>(all) + r * bytes, own,
                                            static_cast<std::size_t>(bytes));
                              }
                              return 0;
                            },
                        .sum = [](void*, void*, std::int64_t, const char*) { return 7; }};
  const Opened opened;
  ASSERT_EQ(tracestep_join(opened.session, &ranks), TRACESTEP_OK) << tracestep_message();
  tracestep_run* const run = opened.plan(TRACESTEP_STEP);
  load(run);
  fill_inputs(run);
  ASSERT_EQ(tracestep_rate(run, 0, 1e-2, 1), TRACESTEP_OK);
  EXPECT_EQ(tracestep_go(run, nullptr), TRACESTEP_FAILED);
  EXPECT_THAT(tracestep_message(), HasSubstr("the caller's sum ended with 7"));
}

TEST(RanksTest, RanksThatAreNoneAreRefused) {
  Meeting meeting;
  Meeting::End end{&meeting, 0};
  const Opened opened;
  const auto refused = [&](auto change) {
    tracestep_ranks ranks = meeting.of(end);
    change(ranks);
    return tracestep_join(opened.session, &ranks) == TRACESTEP_USAGE;
  };
  EXPECT_TRUE(refused([](tracestep_ranks& r) { r.size = 1; }));
  EXPECT_TRUE(refused([](tracestep_ranks& r) { r.rank = 2; }));
  EXPECT_TRUE(refused([](tracestep_ranks& r) { r.count = 1; }));
  EXPECT_TRUE(refused([](tracestep_ranks& r) { r.sum = nullptr; }));
  EXPECT_EQ(tracestep_join(opened.session, nullptr), TRACESTEP_USAGE);
  opened.plan(TRACESTEP_STEP);
  EXPECT_TRUE(refused([](tracestep_ranks&) {}));
  EXPECT_THAT(tracestep_message(), HasSubstr("before the first plan"));
}

}  // namespace
}  // namespace tracestep
