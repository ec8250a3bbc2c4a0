// Packed rows: documents stay whole, rows are full, and nothing is lost.
#include "tokens/packed_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "base/random.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using Numbers = std::vector<std::int64_t>;

// Documents of these lengths; the tokens count through all of them.
TokenSourcePtr documents(const Numbers& lengths) {
  std::vector<std::int32_t> tokens(
      static_cast<std::size_t>(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0})));
  std::iota(tokens.begin(), tokens.end(), 0);
  Numbers begins;
  std::int64_t at = 0;
  for (const std::int64_t length : lengths) {
    begins.push_back(at);
    at += length;
  }
  return memory_documents("documents", tokens, begins);
}

Numbers values(const HostTensor& x) {
  const auto span = x.as<std::int64_t>();
  return {span.begin(), span.end()};
}

Numbers all_rows(const PackedRows& packed) {
  Numbers out(static_cast<std::size_t>(packed.rows()));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

TEST(PackedRowsTest, WholeDocumentsLieSideBySide) {
  const PackedRows packed(documents({4, 6, 3}), 5);  // of 3, 5 and 2 places
  EXPECT_EQ(packed.rows(), 2);
  EXPECT_EQ(packed.filled(), 10);
  EXPECT_EQ(packed.split(), 0);
  const Batch batch = packed.batch(Numbers{0, 1});
  EXPECT_EQ(values(batch.tokens), (Numbers{0, 1, 2, 10, 11, 4, 5, 6, 7, 8}));
  EXPECT_EQ(values(batch.targets), (Numbers{1, 2, 3, 11, 12, 5, 6, 7, 8, 9}));
  EXPECT_EQ(values(batch.starts), (Numbers{0, 0, 0, 3, 3, 0, 0, 0, 0, 0}));
  EXPECT_EQ(values(batch.ends), (Numbers{3, 3, 3, 5, 5, 5, 5, 5, 5, 5}));
  EXPECT_EQ(batch.counted, 10);
}

TEST(PackedRowsTest, PlacesThatAreLeftAreADocumentWithoutTargets) {
  const PackedRows packed(documents({3}), 5);
  const Batch batch = packed.batch(Numbers{0});
  EXPECT_EQ(values(batch.targets), (Numbers{1, 2, kNoTarget, kNoTarget, kNoTarget}));
  EXPECT_EQ(values(batch.starts), (Numbers{0, 0, 2, 2, 2}));
  EXPECT_EQ(values(batch.ends), (Numbers{2, 2, 5, 5, 5}));
  EXPECT_EQ(batch.counted, 2);
}

TEST(PackedRowsTest, LongerDocumentsAreSplitAndCounted) {
  const PackedRows packed(documents({13, 1, 4}), 5);  // 12 places: 5, 5 and 2; none; 3
  EXPECT_EQ(packed.documents(), 2);
  EXPECT_EQ(packed.split(), 1);
  EXPECT_EQ(packed.rows(), 3);
  EXPECT_EQ(packed.filled(), 15);
  const Batch batch = packed.batch(all_rows(packed));
  EXPECT_EQ(batch.counted, 15);  // every token but the first of a document is a target once
  EXPECT_TRUE(contains(message_of(ErrorCode::kInput,
                                  [] {
                                    PackedRows(documents({1, 1}), 5);
                                  }),
                       "has no document of two tokens or more to pack"));
}

// A prompt of eight tokens and an answer of two, in rows of five: the first five places are prompt
// alone, and would be a row that trains nothing.
TEST(PackedRowsTest, PiecesWithoutATargetAreLeftOut) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < 10; ++i) {
    tokens.push_back(i < 8 ? static_cast<std::int32_t>(untrained(i)) : i);
  }
  const PackedRows packed(memory_documents("prompts", tokens, {0}), 5);
  EXPECT_EQ(packed.rows(), 1);
  EXPECT_EQ(packed.left_out(), 1);
  EXPECT_EQ(packed.filled(), 4);
  const Batch batch = packed.batch(Numbers{0});
  EXPECT_EQ(values(batch.targets), (Numbers{kNoTarget, kNoTarget, 8, 9, kNoTarget}));
  EXPECT_EQ(values(batch.tokens), (Numbers{5, 6, 7, 8, 0}));
  for (std::int32_t i = 8; i < 10; ++i) {
    tokens[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(untrained(i));
  }
  EXPECT_TRUE(contains(message_of(ErrorCode::kInput,
                                  [&] { PackedRows(memory_documents("prompts", tokens, {0}), 5); }),
                       "no token of prompts counts in the loss"));
}

// Lengths as documents have them, from a few places to far more than a row.
TEST(PackedRowsTest, NoTokenIsLostAndRowsAreFull) {
  const CounterRng rng(5, "lengths");
  for (const std::int64_t context : {64, 512, 1000}) {
    Numbers lengths;
    for (std::uint64_t i = 0; i < 3000; ++i) {
      lengths.push_back(2 + static_cast<std::int64_t>(std::exp(rng.uniform(i) * 7.0)));
    }
    const PackedRows packed(documents(lengths), context);
    const Batch batch = packed.batch(all_rows(packed));
    std::map<std::int64_t, int> seen;  // how often a token is a target
    const Numbers tokens = values(batch.tokens), targets = values(batch.targets);
    const Numbers starts = values(batch.starts), ends = values(batch.ends);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::int64_t place = static_cast<std::int64_t>(i) % context;
      EXPECT_TRUE(starts[i] <= place && place < ends[i] && ends[i] <= context);
      if (place > 0) {
        EXPECT_TRUE(starts[i] == starts[i - 1] || starts[i] == place);
      }
      if (targets[i] == kNoTarget) continue;
      EXPECT_EQ(targets[i], tokens[i] + 1);
      ++seen[targets[i]];
    }
    std::int64_t at = 0, whole = 0;
    for (const std::int64_t length : lengths) {
      for (std::int64_t i = 1; i < length; ++i) EXPECT_EQ(seen[at + i], 1);
      at += length;
      whole += length - 1;
    }
    EXPECT_EQ(batch.counted, whole);
    EXPECT_GE(static_cast<double>(packed.filled()),
              0.98 * static_cast<double>(packed.rows() * context));
  }
}

TEST(PackedRowsTest, EveryRowComesOnceBeforeAnyComesAgain) {
  const TokenSourcePtr tokens = documents(Numbers(50, 7));
  for (const Order order : {Order::kSequential, Order::kShuffled}) {
    const Batches batches(tokens, {.batch = 5, .context = 6, .order = order, .packed = true});
    std::map<std::int64_t, int> first;  // by the first token of a row
    for (std::int64_t step = 0; step < 20; ++step) {
      const Numbers ids = values(batches.at(step).tokens);
      for (std::size_t row = 0; row < 5; ++row) ++first[ids[row * 6]];
      if (step == 9 || step == 19) {
        EXPECT_EQ(first.size(), 50u);
        for (const auto& [token, count] : first) EXPECT_EQ(count, step == 9 ? 1 : 2) << token;
      }
    }
    // Whatever was asked for before.
    const Batches again(tokens, {.batch = 5, .context = 6, .order = order, .packed = true});
    EXPECT_EQ(values(again.at(13).tokens), values(batches.at(13).tokens));
  }
}

TEST(PackedRowsTest, ValidationHasWholeDocuments) {
  const TokenSourcePtr tokens = documents({10, 20, 30, 25, 15});
  const TokenSplit split = split_tokens(tokens, 0.2);
  EXPECT_EQ(split.train->size(), 85);
  EXPECT_EQ(split.train->documents().size(), 4u);
  EXPECT_EQ(split.validation->documents().size(), 1u);
  EXPECT_EQ(split.validation->documents()[0], 0);
  EXPECT_EQ(split_tokens(tokens, 0.999).train->size(), 10);
  EXPECT_EQ(split_tokens(tokens, 0.001).validation->size(), 15);
}

}  // namespace
}  // namespace tracestep
