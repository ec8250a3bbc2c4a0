// tracestep throughput as a person uses it: growing batches, the one that is enough, and where
// memory ends.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run_binary.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

const std::string kModel =
    " --d-model 16 --d-ff 32 --layers 2 --heads 2 --vocab 64 --context 8 --threads 1";

ProgramRun run(const std::string& words) {
  return run_tracestep(words_of("throughput" + kModel + " " + words));
}

TEST(ThroughputTest, TheAnswerIsABatchAndItsShareOfTheBest) {
  const ProgramRun run_ = run("--batch 1,2,16 --steps 6 --format json");
  ASSERT_EQ(run_.status, 0) << run_.err;
  const Json rows = Json::parse(run_.out, "result").at("rows");
  ASSERT_EQ(rows.size(), 3u);
  double most = 0, best = 0;
  for (const Json& row : rows.items()) most = std::max(most, row.at("tokens_per_s").as_double());
  for (const Json& row : rows.items()) {
    const double share = row.at("of_best_percent").as_double();
    EXPECT_LE(share, 100.0);
    EXPECT_NEAR(share, 100 * row.at("tokens_per_s").as_double() / most, 25) << "median and wall";
    best = std::max(best, share);
  }
  EXPECT_EQ(best, 100.0);
  EXPECT_THAT(run("--batch 1,2,16 --steps 6").out,
              MatchesRegex("(.|\n)*atch [0-9]+ is (.|\n)*tokens/s(.|\n)*"));
}

TEST(ThroughputTest, ABatchThatDoesNotFitIsARowAndTheOthersGoOn) {
  const ProgramRun run_ = run("--batch 1,2,4096 --steps 3 --memory-limit 2MiB");
  ASSERT_EQ(run_.status, 0) << run_.err;
  EXPECT_THAT(run_.out, HasSubstr("Batch 4096 does not fit: it needs "));
  EXPECT_THAT(run_.out, Not(HasSubstr("the largest that was measured")));
  EXPECT_THAT(run("--batch 4096 --memory-limit 2MiB").out,
              ::testing::StartsWith("Out of memory: batch 4096"));
}

TEST(ThroughputTest, WhatASequenceAddsIsTheGrowthOfThePeak) {
  const Json rows =
      Json::parse(run("--batch 8,16 --device null --format json").out, "result").at("rows");
  const std::int64_t a = rows.items()[0].at("peak_bytes").as_int(),
                     b = rows.items()[1].at("peak_bytes").as_int();
  EXPECT_EQ(rows.items()[1].at("per_sequence_bytes").as_int(), (b - a) / 8);
  EXPECT_TRUE(rows.items()[0].at("per_sequence_bytes").is_null());
}

TEST(ThroughputTest, ItGoesOnFromAFileAndDraws) {
  const TempFolder folder;
  const std::string words = "--batch 1,2 --steps 2 --resume " + (folder / "grid.jsonl").string() +
                            " --pictures " + (folder / "drawn").string();
  ASSERT_EQ(run(words).status, 0);
  const ProgramRun again = run(words);
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("2 pictures are in"));
  EXPECT_TRUE(std::filesystem::exists(folder / "drawn" / "throughput-tokens_per_s.svg"));
}

}  // namespace
}  // namespace tracestep
