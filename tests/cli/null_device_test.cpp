// A device that computes nothing has no times: every command that times says so, in its first
// sentence and by empty cells.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run_binary.h"
#include "lab/report/column_facts.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;

const std::string kStep =
    " --device null --d-model 16 --d-ff 24 --layers 1 --heads 2 --vocab 20 --context 8 --steps 3 ";

class NullDevice : public ::testing::TestWithParam<std::string> {};

TEST_P(NullDevice, NoRowHasATime) {
  const ProgramRun run = run_tracestep(words_of(GetParam() + " --format json"));
  ASSERT_EQ(run.status, 0) << run.err;
  std::size_t columns = 0;
  for (const Table& table : tables_of(Json::parse(run.out, GetParam()), GetParam(), "rows")) {
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      if (timing_of(table.columns[c]) == Timing::kNone) continue;
      ++columns;
      for (const std::vector<Json>& row : table.rows) {
        const bool is_empty = row[c].is_null() || (row[c].is_array() && row[c].size() == 0);
        EXPECT_TRUE(is_empty) << table.name << "." << table.columns[c].name << ": "
                              << row[c].dump();
      }
    }
  }
  EXPECT_GT(columns, 0u) << "which could have times";
}

TEST_P(NullDevice, TheFirstSentenceSaysThatThereAreNone) {
  const ProgramRun run = run_tracestep(words_of(GetParam()));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out.substr(0, run.out.find('\n')),
              HasSubstr("this device computes nothing, so it has no time"));
}

INSTANTIATE_TEST_SUITE_P(
    Commands, NullDevice,
    ::testing::Values("bench" + kStep, "bench --mode forward,step --part-steps 2" + kStep,
                      "bench --executor eager,compiled --rounds 3" + kStep,
                      "throughput --batch 1,2" + kStep, "compile --part steps" + kStep,
                      "compile --part ladder --rungs norm,graph" + kStep,
                      "compile --part attention --width 8 --attention-context 16" + kStep,
                      "attention --device null --context 64,128,256 --width 16 --steps 3",
                      "attention --device null --context 64 --width 16 --attention naive,flash "
                      "--rounds 3 --steps 2"));

}  // namespace
}  // namespace tracestep
