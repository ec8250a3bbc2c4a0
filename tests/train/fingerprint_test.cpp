#include "train/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tracestep {
namespace {

using testing::HasSubstr;

TokenSourcePtr tokens_of(std::int64_t count) {
  return memory_tokens("test tokens", std::vector<std::int32_t>(static_cast<std::size_t>(count)));
}

Json run_of(std::int64_t tokens, std::int64_t validation = 0, std::int64_t validate_every = 0,
            std::int64_t batch = 4) {
  TrainOptions options;
  options.shape.batch = batch;
  options.validate_every = validate_every;
  const TokenSourcePtr held = validation > 0 ? tokens_of(validation) : nullptr;
  return fingerprint(options, *tokens_of(tokens), held.get());
}

std::string difference(const Json& saved, const Json& now) {
  try {
    check_same_run(saved, now);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(FingerprintTest, TheSameRunMayContinue) {
  EXPECT_EQ(difference(run_of(950, 50, 10), run_of(950, 50, 10)), "");
  EXPECT_EQ(difference(run_of(950, 50, 10), run_of(950, 50, 20)), "") << "only how often";
}

TEST(FingerprintTest, TheFlagThatDiffersIsNamedWithBothValues) {
  EXPECT_THAT(difference(run_of(1000), run_of(1000, 0, 0, 8)),
              HasSubstr("another --batch: 4, now 8"));
  EXPECT_THAT(difference(run_of(1000), run_of(2000)),
              HasSubstr("another --text or --tokens: 1000 tokens, now 2000 tokens"));
}

TEST(FingerprintTest, ValidationExplainsADifferentNumberOfTokens) {
  EXPECT_THAT(difference(run_of(950, 50, 10), run_of(1000)),
              HasSubstr("another --validate-every: 10, which keeps 50 of 1000 tokens for "
                        "validation, now off"));
  EXPECT_THAT(difference(run_of(1000), run_of(950, 50, 10)),
              HasSubstr("another --validate-every: off, now 10, which keeps 50"));
  EXPECT_THAT(
      difference(run_of(950, 50, 10), run_of(900, 100, 10)),
      HasSubstr("another --validation-fraction: 50 of 1000 tokens, now 100 of 1000 tokens"));
}

}  // namespace
}  // namespace tracestep
