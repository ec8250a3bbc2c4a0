// fit on several devices: what a person asks before buying hours, and what is refused.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

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

const std::string kSizes = " --d-model 64 --d-ff 128 --layers 8 --vocab 512 --context 128";
const std::string kStep = kSizes + " --heads 4 --batch 8 --precision bf16 --attention flash";

Json rows_of(const std::string& arguments) {
  const ProgramRun run = run_tracestep(words_of("fit --format json" + kStep + arguments));
  EXPECT_EQ(run.status, 0) << run.err;
  return Json::parse(run.out, "fit").at("rows");
}

TEST(FitPlanTest, ASentenceSaysDevicesBytesTokensAndDays) {
  const ProgramRun run = run_tracestep(
      words_of("fit --published H100 --gpus 8 --tokens 1T --cost-per-hour 2" + kStep));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out,
              AllOf(StartsWith("8 × H100 SXM: batch 8, context 128, bf16 fits with --parallel dp="),
                    HasSubstr(" tokens/s ("), HasSubstr("1.00 T tokens take "),
                    HasSubstr(" device hours, for ")));
}

TEST(FitPlanTest, OfACardWithProductsByPartsItSaysWhatTheyWouldGain) {
  const auto text_for = [](const std::string& device, const std::string& precision) {
    const ProgramRun run = run_tracestep(words_of("fit --size small --context 512 --published " +
                                                  device + " --precision " + precision));
    EXPECT_EQ(run.status, 0) << run.err;
    return run.out;
  };
  EXPECT_THAT(text_for("H100", "fp32"), HasSubstr("--precision fp32-split, as accurate as fp32"));
  for (const auto& [device, precision] : {std::pair{"H100", "bf16"}, {"4090", "fp32"}}) {
    EXPECT_THAT(text_for(device, precision), Not(HasSubstr("fp32-split"))) << device;
  }
}

// Names of data sheets are refused by --device, as nothing runs on them here.
TEST(FitPlanTest, ADeviceOfADataSheetIsNoBackEndAndItsFlagIsNamed) {
  for (const char* command : {"fit", "predict", "memory --predict"}) {
    const ProgramRun run =
        run_tracestep(words_of(command + std::string(" --size tiny --device a100-40gb")));
    EXPECT_EQ(run.status, 2) << command;
    EXPECT_THAT(run.err, AllOf(HasSubstr("[--device]"), HasSubstr("--published a100-40gb")));
  }
}

// The command that is proposed is taken as it stands, and holds and takes what was said.
TEST(FitPlanTest, WhatIsProposedIsWhatMemoryAndPredictSay) {
  const Json row = rows_of(" --published H100 --gpus 4 --link-gb-s 300").items()[0];
  const std::string step =
      row.at("command").as_string().substr(std::string("tracestep bench ").size());
  const ProgramRun memory = run_tracestep(words_of("memory --predict --format json " + step));
  ASSERT_EQ(memory.status, 0) << memory.err;
  EXPECT_EQ(Json::parse(memory.out, "m").at("rows").items()[0].at("predicted_peak_bytes"),
            row.at("peak_bytes"));
  const ProgramRun time =
      run_tracestep(words_of("predict --published H100 --link-gb-s 300 --format json " + step));
  ASSERT_EQ(time.status, 0) << time.err;
  EXPECT_NEAR(Json::parse(time.out, "p").at("rows").items()[0].at("predicted_ms").as_double(),
              row.at("predicted_ms").as_double(), 1e-6);
}

// Runs the training in the bytes that were said, with a text in the place of FILE; fewer fail.
void check_training(const std::vector<Json>& rows) {
  const auto divided = std::ranges::find_if(rows, [](const Json& row) {
    return row.at("command").as_string().find("--accumulate") != std::string::npos;
  });
  ASSERT_NE(divided, rows.end());
  const TempFolder folder;
  const std::filesystem::path text = folder.path() / "text";
  std::ofstream(text) << std::string(20'000, 'x');
  std::string command = divided->at("command").as_string().substr(std::string("tracestep ").size());
  command.replace(command.find("FILE"), 4, text.string());
  const auto train = [&](std::int64_t bytes) {
    return run_tracestep(
        words_of(command + " --steps 2 --memory-limit " + std::to_string(bytes) + "B"));
  };
  const std::int64_t peak = divided->at("peak_bytes").as_int();
  const ProgramRun within = train(peak);
  EXPECT_EQ(within.status, 0) << within.err;
  EXPECT_THAT(train(peak - 1).err, HasSubstr("out of memory"));
}

Json fit_of_tiny(const std::string& arguments) {
  const ProgramRun fit =
      run_tracestep(words_of("fit --device cpu --threads 1 --format json --size tiny --vocab 256 "
                             "--context 128 --batch 16 " +
                             arguments));
  EXPECT_EQ(fit.status, 0) << fit.err;
  return Json::parse(fit.out, "fit");
}

TEST(FitPlanTest, MicroBatchesTrainWithinWhatWasSaid) {
  check_training(fit_of_tiny("--gpus 1 --memory-limit 112MiB").at("rows").items());
}

TEST(FitPlanTest, WithoutDevicesABatchIsDividedWhereNothingElseFits) {
  const Json fit =
      fit_of_tiny("--memory-limit 90MiB --attention flash --loss-chunks auto --recompute blocks");
  check_training(fit.at("tables").at("remedies").at("rows").items());
}

TEST(FitPlanTest, RanksThatAreGivenAreTaken) {
  const Json row = rows_of(" --published H100 --parallel dp=4,shard=3").items()[0];
  EXPECT_EQ(row.at("status").as_string(), "ok");
  EXPECT_THAT(row.at("command").as_string(), HasSubstr("--parallel dp=4,shard=3"));
}

TEST(FitPlanTest, TheFewestDevicesFitAndAreDoneInTime) {
  const std::string smallest = " --published H100 --smallest gpus";
  EXPECT_EQ(rows_of(smallest).items()[0].at("devices").as_int(), 1);
  const std::string large =
      "fit --format json --size medium --context 512 --batch 8 --published H100 --tokens 1T ";
  const auto row_of = [&](const std::string& more) {
    const ProgramRun run = run_tracestep(words_of(large + more));
    EXPECT_EQ(run.status, 0) << run.err;
    return Json::parse(run.out, "fit").at("rows").items()[0];
  };
  const double days = row_of("--gpus 1").at("days").as_double() / 1.2;
  const Json row = row_of("--smallest gpus --days " + std::to_string(days));
  EXPECT_EQ(row.at("devices").as_int(), 2);
  EXPECT_LE(row.at("days").as_double(), days);
}

// More than a node would be needed, and nothing says how fast the network is: what one node takes
// is an answer.
TEST(FitPlanTest, WithoutANetworkTheFewestDevicesAreOfOneNode) {
  const ProgramRun run = run_tracestep(
      words_of("fit --published H100 --smallest gpus --tokens 1000T --days 1" + kStep));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(StartsWith("Not in time: "), HasSubstr("on 8 × H100 SXM"),
                             HasSubstr("the 8 devices of one node")));
}

// Blocks of codes are of whole tensors: only replicas can have them.
TEST(FitPlanTest, MomentsIn8BitsAreOfDevicesThatUpdateWholeTensors) {
  const Json rows = rows_of(" --published H100 --gpus 2 --moments 8bit");
  for (const Json& row : rows.items()) EXPECT_EQ(row.at("parallel").as_string(), "dp=2");
  const ProgramRun model = run_tracestep(words_of(
      "fit --published H100 --largest model --gpus 2 --moments 8bit --batch 2 --context 64 "
      "--memory-limit 800MiB"));
  EXPECT_THAT(model.out, StartsWith("The largest model that fits at batch 2")) << model.err;
}

TEST(FitPlanTest, ATrainingThatIsNotDoneInTimeIsNotSaidToFit) {
  const ProgramRun run = run_tracestep(words_of(
      "fit --published H100 --smallest gpus --tokens 1000T --days 1 --heads 1 --batch 2" + kSizes));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(StartsWith("Not in time: 1000.00 T tokens take "),
                             HasSubstr(" days, not 1, on 8 × H100 SXM"),
                             HasSubstr("8 devices cannot share a batch of 2: 8 is the next")));
}

// Every table that a screen shows names the source of its times, or why there are none.
TEST(FitPlanTest, TheSourceOfTimesStandsBelowTheTableThatHasThem) {
  const std::string step = "fit --batch 8 --context 128 --size tiny ";
  for (const char* arguments :
       {"--published H100 --memory-limit 40MiB", "--published H100 --tokens 1B",
        "--published H100 --largest batch --memory-limit 100MiB"}) {
    const ProgramRun run = run_tracestep(words_of(step + arguments));
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr("times are from published peaks of H100 SXM")) << arguments;
  }
}

TEST(FitPlanTest, TheLargestModelIsOneThatFits) {
  const ProgramRun run = run_tracestep(
      words_of("fit --largest model --mode inference --memory-limit 1GiB --context 64 --batch 1 "
               "--device cpu --threads 2 --format json"));
  ASSERT_EQ(run.status, 0) << run.err;
  const Json row = Json::parse(run.out, "fit").at("rows").items()[0];
  EXPECT_LE(row.at("peak_bytes").as_int(), (std::int64_t{1} << 30) * 95 / 100);
}

// The page asks nothing of a network and has the sentence, the drawings and the commands.
TEST(FitPlanTest, APlanIsAPageToSendAround) {
  const TempFolder folder;
  const std::string path = (folder.path() / "plan.html").string();
  const ProgramRun run = run_tracestep(
      words_of("fit --published H100 --gpus 2 --memory-limit 1GiB --output " + path + kStep));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("2 × H100 SXM: batch 8")) << "the answer is said as well";
  std::ifstream file(path);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(page, AllOf(StartsWith("<!DOCTYPE html>"),
                          HasSubstr("2 × H100 SXM: batch 8, context 128, bf16 fits with"),
                          HasSubstr("limit 1 GiB"), HasSubstr("Where does its time go?"),
                          HasSubstr("tracestep bench "), HasSubstr("--d-model 64")));
  EXPECT_EQ(page.find("https://"), page.npos);
  const ProgramRun alone = run_tracestep(
      words_of("fit --published H100 --memory-limit 40MiB --overwrite --output " + path + kStep));
  ASSERT_EQ(alone.status, 0) << alone.err;
  std::ifstream second(path);
  const std::string prices{std::istreambuf_iterator<char>(second), {}};
  EXPECT_THAT(prices,
              AllOf(HasSubstr("What does each change cost?"), HasSubstr("limit 40 MiB"),
                    HasSubstr("tokens/s: What would fit"), HasSubstr("run beside others.")));
  EXPECT_THAT(prices, Not(HasSubstr("text-anchor=\"start\">-"))) << "a bar below nothing";
}

TEST(FitPlanTest, WhatIsNotKnownOrDoesNotGoTogetherIsRefused) {
  const std::pair<std::string, const char*> mistakes[] = {
      {kStep + " --gpus 8", "[--memory-limit]"},
      {kStep + " --gpus 8 --parallel dp=2 --published H100", "[--parallel]"},
      {kStep + " --gpus 8 --nodes 3 --published H100", "[--nodes]"},
      {kSizes + " --heads 4 --batch 16 --gpus 16 --published H100", "[--network-gb-s]"},
      {kSizes + " --heads 1 --batch 3 --gpus 4 --published H100", "[--gpus]"},
      {kStep + " --gpus 4 --smallest gpus --published H100", "[--smallest]"},
      {kStep + " --smallest gpus --largest batch --published H100", "[--largest]"},
      {kStep + " --epochs 2 --published H100", "[--epochs]"},
      {kStep + " --tokens 1B --text . --published H100", "[--text]"},
      {kStep + " --cost-per-hour 2 --published H100", "[--cost-per-hour]"},
      {kStep + " --days 0 --published H100", "[--days]"},
      {kStep + " --days 3 --tokens 1B --published H100", "[--days]"},
      {kStep + " --days 3 --largest batch --published H100", "[--days]"},
      {kStep + " --tokens 1B --memory-limit 1GiB", "[--tokens]"},
      {kSizes + " --heads 4 --precision fp8 --published A100-80GB", "[--precision]"},
      {" --size small --largest model --published H100", "[--largest]"},
      {kStep + " --network-gb-s 50 --published H100", "[--network-gb-s]"},
      {kStep + " --parallel dp=2 --device cpu --memory-limit 1GiB", "[--parallel]"}};
  for (const auto& [arguments, where] : mistakes) {
    const ProgramRun run = run_tracestep(words_of("fit" + arguments));
    EXPECT_EQ(run.status, 2) << arguments;
    EXPECT_THAT(run.err, HasSubstr(where)) << arguments;
  }
}

}  // namespace
}  // namespace tracestep
