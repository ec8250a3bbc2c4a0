// attention: the grid of the command, its statuses and its fit. On the null device.
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run_binary.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

Json json_of(const std::string& arguments) {
  const ProgramRun run = run_tracestep(words_of("attention " + arguments + " --format json"));
  EXPECT_EQ(run.status, 0) << run.err;
  return Json::parse(run.out, arguments);
}

TEST(AttentionCommandTest, TheWholeGridIsTwentyCells) {
  const Json result = json_of("--device null --warmup 0 --steps 1");
  EXPECT_EQ(result.at("schema").as_string(), "tracestep.attention/1");
  const auto& rows = result.at("rows").items();
  ASSERT_EQ(rows.size(), 20u);
  // Backward holds a weights tensor of 8·16384² floats, and five of 8·16384·16.
  EXPECT_EQ(rows[4].at("before_backward_bytes").as_int(), (std::int64_t{8} << 30) + (40 << 20));
  EXPECT_TRUE(rows[4].at("forward_tflops").is_null());
  EXPECT_EQ(result.at("tables").at("attention_scaling").at("rows").size(), 4u);
}

TEST(AttentionCommandTest, CellsThatDoNotFitSayOomAndTheOthersGoOn) {
  const Json result = json_of("--device null --width 16 --warmup 0 --steps 1 --memory-limit 4GiB");
  std::string statuses;
  for (const Json& row : result.at("rows").items()) statuses += row.at("status").as_string() + " ";
  EXPECT_EQ(statuses, "ok ok ok oom oom ");  // two of 2 GiB at 8192, one of 512 MiB at 4096
  EXPECT_TRUE(contains(result.at("notes").dump(), "out of memory first at width 16, context 8192"));
}

TEST(AttentionCommandTest, SavedTensorsAndMasksAreDimensionsOfTheGrid) {
  const Json result = json_of(
      "--device null --width 16 --context 64,128 --warmup 0 --steps 1 --mask causal,none "
      "--saved weights,scores+weights,scores+exp+weights");
  EXPECT_EQ(result.at("rows").size(), 12u);
  EXPECT_EQ(run_tracestep(words_of("attention --saved scores")).status, 2);
  EXPECT_EQ(run_tracestep(words_of("attention --device reference")).status, 2);
}

TEST(AttentionCommandTest, TheFlashSweepHasBothFormsAndSixtyFourThousandTokens) {
  const Json result = json_of("--device null --sweep flash --width 16,128 --warmup 0 --steps 1");
  const auto& rows = result.at("rows").items();
  EXPECT_EQ(rows.size(), 80u);  // 10 contexts, 2 widths, 2 forms, 2 precisions
  std::int64_t naive = 0, flash = 0;
  for (const Json& row : rows) {
    if (row.at("context").as_int() != 65536 || row.at("width").as_int() != 128) continue;
    if (row.at("precision").as_string() != "fp32") continue;
    EXPECT_EQ(row.at("batch").as_int(), 1);
    const bool is_flash = row.at("attention").as_string() == "flash";
    EXPECT_EQ(row.at("saved").as_string(), is_flash ? "lse" : "weights");
    (is_flash ? flash : naive) = row.at("before_backward_bytes").as_int();
  }
  const std::int64_t tensor = std::int64_t{65536} * 128 * 4;
  EXPECT_EQ(flash, 5 * tensor + 65536 * 4);
  EXPECT_EQ(naive, 5 * tensor + std::int64_t{65536} * 65536 * 4);
}

}  // namespace
}  // namespace tracestep
