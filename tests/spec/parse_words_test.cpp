// Choices that are more than one word: as text, and as values.
#include "spec/parse_words.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;

struct Text {
  const char* given;
  const char* name;
};

TEST(RecomputationTest, ATextIsReadAsItIsPrinted) {
  for (const Text& text : {Text{"none", "none"},
                           {"blocks", "blocks"},
                           {"every=1", "blocks"},
                           {"every=3", "every=3"},
                           {"nested", "nested"},
                           {"budget=20GiB", "budget=20GiB"},
                           {"budget=1536MiB", "budget=1536MiB"},
                           {"budget=1.5GiB", "budget=1536MiB"},
                           {"budget=1025B", "budget=1025B"},
                           {"budget=2kB", "budget=2000B"},
                           {"layers.*", "blocks"},
                           {"layers.*.ffn+lm_head", "layers.*.ffn+lm_head"}}) {
    const Recomputation read = parse_recomputation("test", text.given);
    EXPECT_EQ(name_of(read), text.name);
    EXPECT_EQ(parse_recomputation("test", name_of(read)), read);
  }
}

TEST(RecomputationTest, AnythingElseIsRefusedWithWhatIsMeant) {
  for (const auto& [text, said] : {std::pair{"block", "did you mean blocks?"},
                                   {"every=0", "out of range"},
                                   {"every=", "is not a whole number"},
                                   {"budget=0B", "leaves no memory at all"},
                                   {"budget=2", "has no unit"},
                                   {"layers..ffn", "layers.*.ffn"},
                                   {"", "give none, blocks"}}) {
    try {
      parse_recomputation("--recompute", text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      EXPECT_THAT(error.what(), HasSubstr(said)) << text;
    }
  }
}

TEST(ParallelTextTest, AChoiceIsWrittenAsItIsRead) {
  for (const char* text :
       {"none", "dp=2", "dp=3,shard=1", "dp=64,shard=3", "dp=2,bucket=tensor", "dp=2,bucket=all",
        "dp=2,bucket=1MiB", "dp=2,bucket=1536KiB", "dp=2,shard=1,bucket=all", "dp=2,overlap=off",
        "dp=2,overlap=updates", "dp=2,sums=low", "dp=2,shard=3,overlap=off,prefetch=2", "tp=2",
        "tp=3,sp", "dp=2,tp=4", "dp=2,shard=3,tp=2,sp", "overlap=off,tp=2"}) {
    EXPECT_EQ(name_of(parse_parallel("--parallel", text)), text);
  }
  EXPECT_EQ(name_of(parse_parallel("--parallel", "dp=1,shard=3")), "none");
  EXPECT_EQ(name_of(parse_parallel("--parallel", "dp=1,shard=3,tp=2")), "tp=2");
  EXPECT_EQ(name_of(parse_parallel("--parallel", "dp=2,tp=1")), "dp=2");
  EXPECT_EQ(parse_parallel("", "shard=2,dp=4"), (Parallel{.ranks = 4, .shard = 2}));
  EXPECT_EQ(parse_parallel("", "tp=3,dp=4"), (Parallel{.ranks = 12, .tensor = 3}));
}

TEST(ParallelTextTest, BatchesFollowTheGradients) {
  const auto bytes_of = [](const char* choice, std::int64_t gradients) {
    return resolve_bucket(parse_parallel("", choice), gradients).bucket_bytes;
  };
  EXPECT_EQ(bytes_of("dp=2", 2'000'000'000), 94'868'329);  // sqrt(2e9 B * 450e9 B/s * 10 us)
  EXPECT_EQ(bytes_of("dp=2,bucket=auto", 500'000'000), 47'434'164);
  EXPECT_EQ(bytes_of("dp=2,bucket=1MiB", 2'000'000'000), 1 << 20);
  EXPECT_EQ(bytes_of("dp=2,shard=1", 2'000'000'000), 25 << 20);
  EXPECT_EQ(parse_parallel("", "dp=2,bucket=all").full_bytes(),
            std::numeric_limits<std::int64_t>::max());
}

TEST(ParallelTextTest, WhatIsNoChoiceIsRefused) {
  for (const char* text : {"",
                           "dp",
                           "dp=0",
                           "dp=two",
                           "tp=0",
                           "sp",
                           "dp=2,sp",
                           "tp=2,sp=1",
                           "dp=2,shard=4",
                           "dp=2,,shard=1",
                           "dp=2,bucket=0B",
                           "dp=2,bucket=25",
                           "dp=2,overlap=1",
                           "dp=2,shard=3,tp=2,prefetch=2",
                           "dp=2,shard=1,overlap=updates",
                           "dp=2,tp=2,overlap=updates",
                           "tp=2,overlap=halves",
                           "dp=2,prefetch=2",
                           "dp=2,shard=3,prefetch=-1",
                           "dp=2,dp=2",
                           "tp=2,sp,sp",
                           "dp=2,sums=low,sums=full"}) {
    EXPECT_THROW(parse_parallel("--parallel", text), Error) << text;
  }
}

TEST(ParallelTextTest, ANumberAloneIsAskedForAsReplicas) {
  try {
    parse_parallel("--parallel", "8");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[--parallel] \"8\" is no choice; did you mean dp=8?");
  }
}

TEST(ParallelTextTest, AWrongPartIsAnsweredWithAllParts) {
  try {
    parse_parallel("--parallel", "dp=2,ddp=4");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"ddp=4\" is no part of a choice"));
    EXPECT_THAT(error.what(), HasSubstr("dp=N, shard=0|1|2|3, bucket=SIZE|tensor|all|auto, "
                                        "sums=full|low, overlap=on|off|updates, prefetch=N, "
                                        "tp=N, sp"));
  }
}

}  // namespace
}  // namespace tracestep
