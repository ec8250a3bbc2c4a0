// Checks that fit, predict and memory --predict assume the same defaults where a GPU is named, and
// mean the same by them.
#include <cstdlib>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run_binary.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string kSmall = " --d-model 64 --d-ff 128 --layers 2 --heads 2 --vocab 256";

Json result_of(const std::string& arguments) {
  const ProgramRun run = run_tracestep(words_of(arguments + " --format json"));
  EXPECT_EQ(run.status, 0) << arguments << run.err;
  return Json::parse(run.out, "result");
}

Json row_of(const std::string& arguments) {
  return result_of(arguments).at("rows").items()[0];
}

// The number in front of `unit`, without the commas between its digits.
double number_before(const std::string& text, const std::string& unit) {
  const std::size_t end = text.find(unit);
  if (end == std::string::npos) return 0;
  std::size_t begin = end;
  while (begin > 0 && (std::isdigit(text[begin - 1]) != 0 || text[begin - 1] == ',')) --begin;
  std::string digits = text.substr(begin, end - begin);
  std::erase(digits, ',');
  return std::atof(digits.c_str());
}

TEST(PlannedDefaultsTest, AModelOnEightCardsIsAnsweredAsPeopleTrainIt) {
  const ProgramRun run =
      run_tracestep(words_of("fit --model qwen2.5-7b --published A100 --gpus 8"));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, StartsWith("8 × A100 SXM 80 GB: batch 16, context 2048, bf16 fits with "
                                  "--parallel dp=8,shard=3"));
  const double rate = number_before(run.out, " tokens/s (");
  EXPECT_GT(rate, 20'000);
  EXPECT_LT(rate, 45'000);
  EXPECT_THAT(run.out, HasSubstr("assumed: --precision bf16 --attention flash --executor compiled "
                                 "--batch 16 --context 2048"));
}

TEST(PlannedDefaultsTest, TheLineBelowIsTheSameCommandInFull) {
  const std::string asked = "fit --size tiny --published H100 --gpus 2";
  const Json assumed = result_of(asked);
  const Json& values = assumed.at("environment").at("assumed");
  EXPECT_EQ(values.at("batch").as_int(), 4);
  EXPECT_EQ(values.at("precision").as_string(), "bf16");
  const Json said = result_of(asked +
                              " --precision bf16 --attention flash --executor compiled --batch 4 "
                              "--context 2048");
  EXPECT_EQ(said.at("environment").find("assumed"), nullptr);
  EXPECT_EQ(assumed.at("rows"), said.at("rows"));
}

TEST(PlannedDefaultsTest, WhatIsGivenWinsOneByOne) {
  const ProgramRun run =
      run_tracestep(words_of("predict --size tiny --published H100 --precision fp32 --batch 3"));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("batch 3, context 2048, fp32"),
                             HasSubstr("assumed: --attention flash --executor compiled "
                                       "--context 2048\n")));
}

TEST(PlannedDefaultsTest, ACardWithoutBfloat16IsPlannedInFloat16) {
  EXPECT_EQ(row_of("predict --size tiny --published V100").at("precision").as_string(), "fp16");
}

TEST(PlannedDefaultsTest, WhatRunsAndWhatIsOnTheCpuKeepTheirDefaults) {
  for (const char* command : {"fit --memory-limit 8GiB", "memory --predict", "memory"}) {
    const ProgramRun run = run_tracestep(words_of(command + kSmall + " --device cpu --all"));
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_THAT(run.out, AllOf(HasSubstr("context 512"), Not(HasSubstr("assumed:")))) << command;
  }
}

TEST(PlannedDefaultsTest, ACardIsTheSameLimitToEveryCommand) {
  const std::string card = " --size tiny --published H100";
  const Json memory = result_of("memory --predict" + card);
  const std::int64_t limit = memory.at("environment").at("device_memory_limit_bytes").as_int();
  EXPECT_EQ(limit, row_of("fit" + card).at("limit_bytes").as_int());
  EXPECT_EQ(memory.at("rows").items()[0].at("predicted_peak_bytes"),
            row_of("fit" + card).at("peak_bytes"));
  EXPECT_EQ(memory.at("rows").items()[0].at("predicted_peak_bytes"),
            row_of("predict" + card).at("peak_bytes"));
  const ProgramRun text = run_tracestep(words_of("memory --predict" + card));
  EXPECT_THAT(text.out, AllOf(StartsWith("It fits: at batch 4, context 2048, bf16 the peak is "),
                              HasSubstr("assumed: --precision bf16")));
}

TEST(PlannedDefaultsTest, WhatDoesNotFitACardIsSaidWithTheTimesOfThatCard) {
  const std::string step = " --published 4090 --memory-limit 60MiB --format json" + kSmall;
  const auto first_price = [](const std::string& arguments) {
    const ProgramRun run = run_tracestep(words_of(arguments));
    const Json remedies = Json::parse(run.out, "result").at("tables").at("remedies").at("rows");
    return remedies.items().empty() ? Json() : remedies.items()[0].at("time_per_token");
  };
  EXPECT_EQ(first_price("memory --predict" + step), first_price("fit" + step));
}

TEST(PlannedDefaultsTest, ACardWithoutPredictionIsRefusedWithTheWayOut) {
  const ProgramRun run = run_tracestep(words_of("memory --size tiny --published H100"));
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("[--published]"), HasSubstr("add --predict")));
}

// --- searches agree ------------------------------------------------------------------------------

// A step that `fit` can make fit with its batch and its context is one whose largest batch and
// context are at least as large.
TEST(PlannedDefaultsTest, WhatMakesAStepFitMakesTheLargestFit) {
  const std::string step =
      "fit --device cuda --batch 4 --context 256 --precision fp32 --executor eager "
      "--mode forward-backward" +
      kSmall;
  bool has_another_task = false;
  for (const char* limit : {"37000KiB", "37500KiB", "39MiB"}) {
    SCOPED_TRACE(limit);
    const std::string asked = step + " --memory-limit " + limit;
    const Json plain = result_of(asked);
    bool fits = plain.at("rows").items()[0].at("status").as_string() == "ok";
    if (const Json* remedies = plain.at("tables").find("remedies")) {
      for (const Json& row : remedies->at("rows").items()) {
        const std::string flags = row.at("flags").as_string();
        if (flags.find("--batch") != flags.npos || flags.find("--context") != flags.npos) continue;
        if (flags.find("--accumulate") != flags.npos) continue;
        fits = true;
        has_another_task = has_another_task || row.at("severity").as_string() == "another task";
      }
    }
    for (const auto& [growth, least] : {std::pair("batch", 4), {"context", 256}}) {
      std::int64_t most = 0;
      const Json largest = result_of(asked + " --largest " + growth).at("tables").at("largest");
      for (const Json& row : largest.at("rows").items()) {
        if (!row.at(growth).is_null()) most = std::max(most, row.at(growth).as_int());
      }
      EXPECT_EQ(most >= least, fits) << growth << " " << most;
    }
  }
  EXPECT_TRUE(has_another_task) << "no limit needs everything in bfloat16: the test lost its case";
}

TEST(PlannedDefaultsTest, TheLargestBatchIsFoundOnSeveralDevicesToo) {
  const std::string on = " --published H100 --memory-limit 60MiB" + kSmall;
  const auto most = [](const Json& rows) {
    std::int64_t out = 0;
    for (const Json& row : rows.items()) {
      if (!row.at("batch").is_null()) out = std::max(out, row.at("batch").as_int());
    }
    return out;
  };
  const Json shared = result_of("fit --largest batch --gpus 4" + on).at("rows");
  const Json alone = result_of("fit --largest batch" + on).at("tables").at("largest");
  EXPECT_GT(most(shared), most(alone.at("rows")));
  EXPECT_EQ(most(shared) % 4, 0);
  EXPECT_THAT(shared.items().back().at("change").as_string(), HasSubstr("--parallel "));
  const ProgramRun text = run_tracestep(words_of("fit --largest batch --gpus 4" + on));
  EXPECT_THAT(text.out, StartsWith("The largest batch that fits on 4 devices at context 2048, "
                                   "bf16 is "));
  EXPECT_THAT(text.out, Not(HasSubstr("--batch"))) << "what is searched for is not assumed";
}

TEST(PlannedDefaultsTest, NothingThatFitsIsSaidAsSuch) {
  const ProgramRun run = run_tracestep(
      words_of("fit --size tiny --published H100 --memory-limit 1MiB --largest batch"));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, StartsWith("Not even a batch of one fits at context 2048, bf16"));
}

// --- devices and tokens --------------------------------------------------------------------------

// Numbers between the powers of two, and those that do not divide the batch.
TEST(PlannedDefaultsTest, TheFewestDevicesAreCountedOneByOne) {
  const std::string step = "fit --size tiny --context 512 --published H100 --link-gb-s 100000 ";
  const double rate = row_of(step + "--gpus 3 --batch 18").at("tokens_per_s").as_double();
  const double days = 1e10 / rate / 86'400 * 1.02;
  const std::string asked =
      step + "--batch 16 --smallest gpus --tokens 10B --days " + std::to_string(days);
  const Json row = row_of(asked);
  EXPECT_EQ(row.at("devices").as_int(), 3);
  EXPECT_EQ(row.at("batch").as_int(), 18);
  EXPECT_THAT(run_tracestep(words_of(asked)).out,
              HasSubstr("3 devices cannot share a batch of 16: 18 is the next"));
}

TEST(PlannedDefaultsTest, EpochsOfATextAreTokens) {
  const TempFolder folder;
  const std::string text = (folder.path() / "text.txt").string();
  std::ofstream(text) << std::string(10'000, 'x');
  const std::string step = "fit --size tiny --published H100 --gpus 1 ";
  EXPECT_EQ(row_of(step + "--epochs 3 --text " + text).at("tokens").as_string(), "30.00 k");
  const ProgramRun known = run_tracestep(
      words_of("fit --model smollm2-135m --published H100 --epochs 2 --text " + text));
  EXPECT_EQ(known.status, 0) << known.err;
  EXPECT_THAT(known.out, AllOf(HasSubstr("5.00 k tokens take "),
                               HasSubstr("tokens: 2 epochs of 2.50 k, counted one for 4 bytes"),
                               HasSubstr("--tokenizer DIR")));
}

TEST(PlannedDefaultsTest, EpochsOfATokenFileAreTokens) {
  const TempFolder folder;
  const std::string tokens = (folder.path() / "tokens.bin").string();
  std::ofstream(tokens, std::ios::binary) << std::string(2'000, '\0');
  const std::string step = "fit --size tiny --published H100 --gpus 1 --tokens " + tokens;
  EXPECT_EQ(row_of(step + " --token-dtype uint16 --epochs 2").at("tokens").as_string(), "2.00 k");
  EXPECT_EQ(row_of(step + " --token-dtype uint16").at("tokens").as_string(), "1.00 k");
}

}  // namespace
}  // namespace tracestep
