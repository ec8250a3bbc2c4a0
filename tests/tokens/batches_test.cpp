#include "tokens/batches.h"

#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace tracestep {
namespace {

TokenSourcePtr counting(int count) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  return memory_tokens("counting", std::move(ids));
}

std::vector<std::int64_t> ids(const HostTensor& tensor) {
  const auto span = tensor.as<std::int64_t>();
  return {span.begin(), span.end()};
}

using Ids = std::vector<std::int64_t>;

TEST(BatchesTest, SequentialRowsFollowEachOtherAndGoRound) {
  const Batches batches(counting(10), {.batch = 2, .context = 3});
  const Batch first = batches.at(0);
  EXPECT_EQ(first.tokens.shape, (Shape{2, 3}));
  EXPECT_EQ(ids(first.tokens), (Ids{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(ids(first.targets), (Ids{1, 2, 3, 4, 5, 6}));
  const Batch second = batches.at(1);
  EXPECT_EQ(ids(second.tokens), (Ids{6, 7, 8, 9, 0, 1}));
  EXPECT_EQ(ids(second.targets), (Ids{7, 8, 9, 0, 1, 2}));
  EXPECT_EQ(batches.at(5 + 1'000'000'000'000).tokens.bytes, batches.at(5).tokens.bytes);
}

TEST(BatchesTest, ShuffledRowsAreWholeWindowsAndUseEveryStart) {
  const Batches batches(counting(12), {.batch = 4, .context = 5, .order = Order::kShuffled});
  std::set<std::int64_t> starts;
  for (std::int64_t step = 0; step < 100; ++step) {
    const Batch batch = batches.at(step);
    const Ids tokens = ids(batch.tokens), targets = ids(batch.targets);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_EQ(targets[i], tokens[i] + 1);
      EXPECT_EQ(tokens[i], tokens[i / 5 * 5] + static_cast<std::int64_t>(i % 5));
    }
    for (std::size_t row = 0; row < 4; ++row) starts.insert(tokens[row * 5]);
  }
  EXPECT_EQ(starts, (std::set<std::int64_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(BatchesTest, ShuffledBatchesDependOnSeedAndStepAlone) {
  const auto tokens = counting(1000);
  const Batches::Options options{.batch = 8, .context = 4, .order = Order::kShuffled, .seed = 3};
  const Batches a(tokens, options), b(tokens, options);
  for (int step : {7, 2, 7}) EXPECT_EQ(ids(a.at(step).tokens), ids(b.at(step).tokens));
  EXPECT_NE(ids(a.at(0).tokens), ids(a.at(1).tokens));
  Batches::Options other = options;
  other.seed = 4;
  EXPECT_NE(ids(a.at(0).tokens), ids(Batches(tokens, other).at(0).tokens));
}

TEST(BatchesTest, AFileShorterThanOneWindowIsRefused) {
  EXPECT_EQ(message_of(ErrorCode::kInput, [] { Batches(counting(4), {.context = 4}); }),
            "[batches] counting has 4 tokens; a context of 4 needs at least 5");
  for (Order order : {Order::kSequential, Order::kShuffled}) {
    EXPECT_EQ(ids(Batches(counting(5), {.context = 4, .order = order}).at(0).targets),
              (Ids{1, 2, 3, 4}));
  }
}

TEST(BatchesTest, ImpossibleSizesAreRefused) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  message_of(ErrorCode::kUsage, [] { Batches(counting(9), {.batch = 0}); });
  message_of(ErrorCode::kUsage, [] { Batches(counting(9), {.context = -1}); });
  message_of(ErrorCode::kUsage, [] { Batches(counting(9), {.batch = kHuge, .context = 4}); });
}

}  // namespace
}  // namespace tracestep
