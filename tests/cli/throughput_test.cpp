// tracestep throughput as a person uses it: growing batches, the one that is enough, and where
// memory ends.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/run_binary.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kModel =
    " --d-model 16 --d-ff 32 --layers 2 --heads 2 --vocab 64 --context 8 --threads 1";

ProgramRun run(const std::string& words) {
  return run_tracestep(words_of("throughput" + kModel + " " + words));
}

// When batches are this far apart, the larger is faster by far, whatever else runs.
TEST(ThroughputTest, TheAnswerIsTheBatchOfItsRows) {
  const ProgramRun shown = run("--batch 1,256 --steps 6");
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, ::testing::StartsWith("Batch 256 is the fastest, "));
  EXPECT_THAT(shown.out, HasSubstr("Batch 256 is the largest that was measured"));
  EXPECT_THAT(shown.out, HasSubstr("tokens/s"));
}

TEST(ThroughputTest, ABatchThatDoesNotFitIsARowAndTheOthersGoOn) {
  const ProgramRun run_ = run("--batch 1,2,4096 --steps 3 --memory-limit 2MiB");
  ASSERT_EQ(run_.status, 0) << run_.err;
  EXPECT_THAT(run_.out, HasSubstr("Batch 4096 does not fit: it needs "));
  EXPECT_THAT(run_.out, Not(HasSubstr("the largest that was measured")));
  EXPECT_THAT(run("--batch 4096 --memory-limit 2MiB").out,
              ::testing::StartsWith("Out of memory: batch 4096"));
}

// Each batch is measured by a command of its own, and still held against the others.
TEST(ThroughputTest, BatchesOfAFileAreHeldAgainstEachOtherAndDrawn) {
  const TempFolder folder;
  const std::string words = "--batch 1,256 --steps 6 --resume " + (folder / "grid.jsonl").string() +
                            " --pictures " + (folder / "drawn").string();
  ASSERT_EQ(run(words).status, 0);
  const ProgramRun again = run(words);
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.out, ::testing::StartsWith("Batch 256 is the fastest, "));
  EXPECT_THAT(again.err, HasSubstr("2 pictures are in"));
  EXPECT_TRUE(std::filesystem::exists(folder / "drawn" / "throughput-tokens_per_s.svg"));
}

}  // namespace
}  // namespace tracestep
