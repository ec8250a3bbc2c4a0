// Models and batches with a size of 1: legal, small enough to come up in every search for a fault,
// and where products have rows or columns of one element.
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run_binary.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

// Each sets some of the sizes to 1, and the others to values that differ.
const char* const kSizes[] = {"--context 1 --batch 1 --d-model 16 --heads 2 --d-ff 24 --vocab 20",
                              "--context 6 --batch 1 --d-model 16 --heads 2 --d-ff 24 --vocab 20",
                              "--context 1 --batch 3 --d-model 16 --heads 2 --d-ff 24 --vocab 20",
                              "--context 6 --batch 2 --d-model 16 --heads 2 --d-ff 24 --vocab 1",
                              "--context 6 --batch 2 --d-model 16 --heads 2 --d-ff 1 --vocab 20",
                              "--context 1 --batch 1 --d-model 16 --heads 1 --d-ff 1 --vocab 1",
                              "--context 1 --batch 1 --d-model 2 --heads 1 --d-ff 1 --vocab 1"};

TEST(SizesOfOneTest, BenchRunsThemInEveryForm) {
  for (const char* sizes : kSizes) {
    const ProgramRun run = run_tracestep(
        words_of(std::string("bench --layers 1 --warmup 0 --steps 1 --roof 0 --threads 2 "
                             "--mode inference,step --precision fp32,bf16 --ops primitive,fused "
                             "--attention naive,flash --format json ") +
                 sizes));
    ASSERT_EQ(run.status, 0) << sizes << "\n" << run.err;
    const Json result = Json::parse(run.out, sizes);
    for (const Json& row : result.at("rows").items()) {
      EXPECT_EQ(row.at("status").as_string(), "ok") << sizes;
    }
  }
}

TEST(SizesOfOneTest, TrainingGoesOn) {
  const TempFolder folder;
  folder.write("zeros.bin", std::string(400, '\0'));  // tokens of a vocabulary of one word
  for (const char* sizes : kSizes) {
    const ProgramRun run = run_tracestep(
        words_of(std::string("train --tokens zeros.bin --token-dtype uint16 --steps 2 "
                             "--layers 1 --threads 2 --log log.jsonl ") +
                 sizes),
        {.folder = folder.path()});
    EXPECT_EQ(run.status, 0) << sizes << "\n" << run.err;
  }
}

}  // namespace
}  // namespace tracestep
