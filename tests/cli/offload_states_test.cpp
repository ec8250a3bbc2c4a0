// The optimizer's states in the host's memory, and gradients of micro-batches in 16 bits, as a
// person asks for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run_binary.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
const std::string kLarge =
    " --model qwen2.5-14b --context 1024 --batch 8 --precision bf16 --moments bf16 "
    "--offload optimizer --recompute blocks --loss-chunks auto --attention flash --executor "
    "compiled ";

Json row_of(const std::string& arguments) {
  const ProgramRun run = run_tracestep(words_of(arguments + " --format json"));
  EXPECT_EQ(run.status, 0) << arguments << "\n" << run.err;
  return Json::parse(run.out, arguments).at("rows").items()[0];
}

// bf16 weights and gradients on a card of 80 GB; masters and moments in 112 GiB of the host's.
TEST(OffloadStatesTest, AModelOf14BillionWeightsIsPlannedWithin80GB) {
  const std::string narrow = kLarge + "--accumulate 2 --grad-accum-dtype low ";
  const Json row = row_of("predict --published H100 --memory-limit 80GB" + narrow);
  EXPECT_EQ(row.at("status").as_string(), "ok");
  EXPECT_LT(row.at("peak_bytes").as_int(), 80'000'000'000);
  EXPECT_LT(row.at("host_bytes").as_int(), 112 * kGiB);
  EXPECT_GT(row.at("host_bytes").as_int(), 100 * kGiB);
  const Json wide = row_of("predict --published H100 --memory-limit 80GB --accumulate 2" + kLarge);
  EXPECT_EQ(wide.at("status").as_string(), "oom");
}

// The states cross the bus once a step, whatever the number of micro-batches.
TEST(OffloadStatesTest, TheyMoveOnceAStep) {
  const auto ms = [&](const std::string& more) {
    return row_of(
               "predict --published H100 --size small --context 128 --batch 2 --precision bf16 "
               "--executor compiled " +
               more)
        .at("predicted_ms")
        .as_double();
  };
  const double two = ms("--accumulate 2 --offload optimizer") - ms("--accumulate 2"),
               four = ms("--accumulate 4 --offload optimizer") - ms("--accumulate 4");
  EXPECT_GT(two, 0);
  EXPECT_NEAR(four, two, 0.01 * two);
}

// Of a step whose weights, gradients and states do not fit, the narrow ones that stay do.
TEST(OffloadStatesTest, FitOffersThem) {
  const ProgramRun run = run_tracestep(
      words_of("fit --d-model 512 --d-ff 2048 --layers 2 --heads 8 --vocab 8000 --published H100 "
               "--context 64 "
               "--batch 1 --accumulate 4 --executor compiled --precision bf16 --moments bf16 "
               "--memory-limit 80MB --format json"));
  EXPECT_EQ(run.status, 0) << run.err;
  const Json result = Json::parse(run.out, "fit");
  bool is_offered = false;
  for (const Json& row : result.at("tables").at("remedies").at("rows").items()) {
    const std::string command = row.at("command").as_string();
    if (command.find("--offload optimizer") == std::string::npos) continue;
    is_offered = is_offered || command.find("--grad-accum-dtype low") != std::string::npos;
    EXPECT_GT(row.at("host_bytes").as_int(), 0);
    EXPECT_GT(row.at("predicted_ms").as_double(), 0);
  }
  EXPECT_TRUE(is_offered) << run.out;
}

TEST(OffloadStatesTest, SumsIn16BitsAreRefusedWhereThereAreNone) {
  const std::string step =
      "bench --d-model 32 --d-ff 64 --layers 2 --heads 2 --vocab 50 --context 8 "
      "--batch 2 --grad-accum-dtype low ";
  const ProgramRun alone = run_tracestep(words_of(step));
  EXPECT_EQ(alone.status, 2);
  const char* const without_effect =
      "tracestep: [--grad-accum-dtype] only gradients of micro-batches that are made in 16 bits, "
      "of weights in float32, can be added up in either; leave it out, or give --accumulate of two "
      "or more with --precision bf16, fp16 or fp8\n";
  EXPECT_EQ(alone.err, without_effect);
  for (const char* precision : {"fp32", "bf16-pure"}) {  // one dtype has no other to add up in
    const std::string words = step + "--accumulate 2 --precision " + precision;
    EXPECT_EQ(run_tracestep(words_of(words)).err, without_effect) << precision;
  }
  const ProgramRun ranks =
      run_tracestep(words_of(step + "--accumulate 2 --precision bf16 --parallel dp=2"));
  EXPECT_EQ(ranks.status, 2);
  EXPECT_EQ(
      ranks.err,
      "tracestep: [--grad-accum-dtype] low with dp=2: ranks add up gradients in float32; leave "
      "it out; sums=low rounds what ranks send\n");
}

TEST(OffloadStatesTest, ATrainingResumesWithTheSameWeights) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += std::to_string(i) + " ";
  folder.write("text.txt", text);
  const std::string train =
      "train --text text.txt --d-model 32 --d-ff 64 --layers 2 --heads 2 --context 16 --batch 2 "
      "--precision bf16 --executor compiled --offload optimizer --accumulate 3 "
      "--grad-accum-dtype low --threads 1 ";
  const auto run = [&](const std::string& more) {
    const ProgramRun done = run_tracestep(words_of(train + more), {.folder = folder.path()});
    EXPECT_EQ(done.status, 0) << done.err;
  };
  run("--steps 6 --save whole.safetensors");
  run("--steps 3 --checkpoint states --save part.safetensors");
  run("--steps 6 --checkpoint states --resume --save part.safetensors");
  EXPECT_EQ(content_of(folder.path() / "whole.safetensors"),
            content_of(folder.path() / "part.safetensors"));
}

}  // namespace
}  // namespace tracestep
