// memory: measured beside predicted, the tables of one step, snapshots, steps that do not fit.
#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run_binary.h"
#include "support/python.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

const std::string kSmallModel =
    " --d-model 32 --d-ff 64 --layers 2 --heads 2 --vocab 50 --context 16 --batch 2 --threads 1";

Json json_of(const std::string& arguments, int status = 0) {
  const ProgramRun run = run_tracestep(words_of("memory " + arguments + " --format json"));
  EXPECT_EQ(run.status, status) << arguments << "\n" << run.err;
  return Json::parse(run.out, arguments);
}

TEST(MemoryCommandTest, MeasuredPeaksAreThePredictedOnesInAGrid) {
  const Json result = json_of(
      "--mode inference,forward,forward-backward,step --precision fp32,bf16 --ops "
      "primitive,fused --device cpu" +
      kSmallModel);
  EXPECT_EQ(result.at("schema").as_string(), "tracestep.memory/2");
  const auto& rows = result.at("rows").items();
  ASSERT_EQ(rows.size(), 16u);
  for (const Json& row : rows) {
    EXPECT_EQ(row.at("status").as_string(), "ok");
    EXPECT_EQ(row.at("measured_peak_bytes"), row.at("predicted_peak_bytes"));
    EXPECT_EQ(row.at("residual_bytes").as_int(), 4 * 2 * 16 * 32);
    const bool casts = row.at("precision").as_string() == "bf16";
    EXPECT_EQ(row.at("weight_cast_bytes").as_int() > 0, casts);
    EXPECT_EQ(row.at("versus_fp32_percent").is_null(), !casts);
  }
}

TEST(MemoryCommandTest, OneStepHasAllItsTablesInTheData) {
  const Json result = json_of("--mode step" + kSmallModel);
  const Json& tables = result.at("tables");
  for (const char* name :
       {"memory", "categories", "phases", "contract", "formulas", "holders", "largest",
        "saved_by_op", "saved_by_block", "timeline", "ledger", "buffers"}) {
    EXPECT_NE(tables.find(name), nullptr) << name;
  }
}

TEST(MemoryCommandTest, ChosenTablesAreShownAndOthersAreNot) {
  const ProgramRun run =
      run_tracestep(words_of("memory --predict --tables timeline --timeline-rows 3" + kSmallModel));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.out.find("Active memory"), std::string::npos);
  EXPECT_EQ(run.out.find("Who holds"), std::string::npos);
  const ProgramRun csv =
      run_tracestep(words_of("memory --predict --tables ledger --format csv" + kSmallModel));
  EXPECT_TRUE(csv.out.starts_with("path,op,")) << csv.out.substr(0, 80);
}

TEST(MemoryCommandTest, ASnapshotIsReadByPythonWithItsTwin) {
  const TempFolder folder;
  const auto pickle = folder / "step.pickle", twin = folder / "step.json";
  for (const std::string how : {"--device cpu", "--predict"}) {
    const Json result = json_of(how + " --mode step --snapshot " + pickle.string() +
                                " --snapshot-json " + twin.string() + kSmallModel);
    const PythonRun python = check_snapshot_files(pickle, twin);
    if (!python.has_python) GTEST_SKIP() << "needs python3";
    EXPECT_EQ(python.status, 0) << python.out;
    const std::int64_t peak = result.at("rows").items()[0].at("predicted_peak_bytes").as_int();
    EXPECT_EQ(python.out, std::to_string(peak) + "\n");
  }
}

TEST(MemoryCommandTest, ASnapshotIsOfOneStep) {
  const ProgramRun run = run_tracestep(
      words_of("memory --predict --mode step,forward --snapshot /tmp/x.pickle" + kSmallModel));
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.err.find("--snapshot"), std::string::npos);
}

TEST(MemoryCommandTest, WhatDoesNotFitIsExplainedTheSameWayPredictedAndMeasured) {
  const std::string arguments =
      "--mode step --ops primitive --memory-limit 1MiB --vocab 500 "
      "--d-model 32 --d-ff 64 --layers 2 --heads 2 --context 64 --batch "
      "4 --threads 1";
  const Json measured = json_of("--device cpu " + arguments, 4);
  const Json predicted = json_of("--predict " + arguments);
  for (const char* name : {"failure", "failure_holders", "remedies"}) {
    EXPECT_EQ(measured.at("tables").at(name).at("rows"), predicted.at("tables").at(name).at("rows"))
        << name;
  }
  EXPECT_EQ(measured.at("rows").items()[0].at("status").as_string(), "oom");
  EXPECT_EQ(predicted.at("rows").items()[0].at("status").as_string(), "oom");
  for (const Json& row : measured.at("tables").at("remedies").at("rows").items()) {
    EXPECT_LE(row.at("peak_bytes").as_int(), 1 << 20);
  }
}

// No change of the whole batch would do, and a part of it does.
TEST(MemoryCommandTest, ATrainingStepThatDoesNotFitIsDividedWhereNothingElseKeepsItsTask) {
  const std::string step =
      "--predict --d-model 32 --d-ff 64 --layers 3 --heads 2 --vocab 50 --context 256 --batch 32 "
      "--memory-limit 3MiB";
  const ProgramRun run = run_tracestep(words_of("memory " + step));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, ::testing::HasSubstr("micro-batches are of train"));
  const Json result = json_of(step);
  const auto& rows = result.at("tables").at("remedies").at("rows").items();
  ASSERT_FALSE(rows.empty());
  for (const Json& row : rows) {
    EXPECT_THAT(row.at("command").as_string(),
                ::testing::StartsWith("tracestep train --text FILE --accumulate "));
    EXPECT_NE(row.at("severity").as_string(), "another task");
  }
}

TEST(MemoryCommandTest, WhatIsRecomputedIsARowOfTheGridAndMeasuredAsPredicted) {
  const Json result =
      json_of("--recompute none,blocks,every=2,nested,layers.*.ffn --device cpu" + kSmallModel);
  const auto& rows = result.at("rows").items();
  ASSERT_EQ(rows.size(), 5u);
  for (const Json& row : rows) {
    EXPECT_EQ(row.at("measured_peak_bytes"), row.at("predicted_peak_bytes"));
    const bool keeps_all = row.at("recompute").as_string() == "none";
    EXPECT_EQ(row.at("by_phase").at("recompute").as_int() > 0, !keeps_all);
    if (!keeps_all) {
      EXPECT_LT(row.at("saved_bytes").as_int(), rows[0].at("saved_bytes").as_int());
    }
  }
  const ProgramRun text = run_tracestep(words_of("memory --all --recompute blocks" + kSmallModel));
  EXPECT_NE(text.out.find("Computed again in backward"), std::string::npos) << text.out;
}

// Long enough that what is saved decides the peak.
const std::string kModelOfAnyContext =
    " --d-model 32 --d-ff 64 --layers 2 --heads 2 --vocab 50 --batch 2 --threads 1";
const std::string kLongModel = " --context 64" + kModelOfAnyContext;

TEST(MemoryCommandTest, ABudgetIsMetOrRefusedWithTheLeastPeak) {
  const Json met = json_of("--predict --recompute budget=800KiB" + kLongModel);
  EXPECT_LE(met.at("rows").items()[0].at("predicted_peak_bytes").as_int(), 800 << 10);
  EXPECT_EQ(met.at("tables").at("recompute").at("rows").items().size(), 1u);
  const ProgramRun run =
      run_tracestep(words_of("memory --predict --recompute budget=100KiB" + kLongModel));
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.err.find("the least peak is"), std::string::npos) << run.err;
}

TEST(MemoryCommandTest, ABudgetThatCannotBeMetIsTheStatusOfItsRow) {
  const std::string grid = " --recompute budget=500KiB --context 64,8" + kModelOfAnyContext;
  for (const std::string how : {"", "--predict "}) {
    const Json rows = json_of(how + grid).at("rows");
    EXPECT_EQ(rows.items()[0].at("status").as_string(), "oom");
    EXPECT_GT(rows.items()[0].at("predicted_peak_bytes").as_int(), 500 << 10);
    EXPECT_TRUE(rows.items()[0].at("saved_bytes").is_null());
    EXPECT_EQ(rows.items()[1].at("status").as_string(), "ok");
  }
  EXPECT_THAT(run_tracestep(words_of("memory --predict" + grid)).out,
              ::testing::HasSubstr("the least peak is"));
}

TEST(FitCommandTest, APriceNamesItsDeviceAndIsOneForOneChangeThere) {
  const std::string step =
      " --d-model 64 --d-ff 96 --layers 2 --heads 2 --vocab 64 --batch 8 --context 64 "
      "--memory-limit 2MiB --format json";
  const auto remedies = [&](const std::string& command) {
    const ProgramRun run = run_tracestep(words_of(command + step));
    return Json::parse(run.out, command).at("tables").at("remedies");
  };
  const auto title = [](const Json& table) {
    return table.at("columns").at("time_per_token").at("title").as_string();
  };
  const Json one = remedies("memory --predict --device cuda"),
             published = remedies("fit --published H100"), planned = remedies("fit --device cuda");
  EXPECT_EQ(title(one), "token on a usual GPU");
  EXPECT_EQ(title(planned), "token on a usual GPU");
  EXPECT_TRUE(contains(title(published), "token on H100")) << title(published);
  for (const Json& row : one.at("rows").items()) {
    for (const Json& other : planned.at("rows").items()) {
      if (row.at("flags") == other.at("flags")) {
        EXPECT_EQ(row.at("time_per_token"), other.at("time_per_token"));
      }
    }
  }
}

TEST(FitCommandTest, WhatDoesNotFitGetsTheCommandsThatDo) {
  const ProgramRun run =
      run_tracestep(words_of("fit --memory-limit 800KiB --format json" + kLongModel));
  ASSERT_EQ(run.status, 0) << run.err;
  const Json result = Json::parse(run.out, "fit");
  EXPECT_EQ(result.at("schema").as_string(), "tracestep.fit/1");
  EXPECT_EQ(result.at("rows").items()[0].at("status").as_string(), "oom");
  const auto& remedies = result.at("tables").at("remedies").at("rows").items();
  ASSERT_FALSE(remedies.empty());
  // Each command is taken as it stands, and its peak is the one that was said.
  for (const Json& row : remedies) {
    EXPECT_LE(row.at("peak_bytes").as_int(), 800 << 10);
    const std::string command = row.at("command").as_string(), program = "tracestep ";
    ASSERT_TRUE(command.starts_with(program + "bench ")) << command;
    const ProgramRun bench = run_tracestep(
        words_of(command.substr(program.size()) + " --warmup 0 --steps 1 --roof 0 --format json"));
    ASSERT_EQ(bench.status, 0) << command << "\n" << bench.err;
    const Json measured = Json::parse(bench.out, command).at("rows").items()[0];
    EXPECT_EQ(measured.at("peak_bytes"), row.at("peak_bytes")) << command;
  }
}

// The batch that is given does not matter where the largest is asked for.
TEST(FitCommandTest, TheLargestBatchIsFoundFromOneThatIsTooLarge) {
  const std::string fit =
      "fit --d-model 32 --d-ff 48 --layers 1 --heads 2 --vocab 64 --context 16 --threads 1 "
      "--memory-limit 1MiB --format json --batch 8 ";
  const ProgramRun refused = run_tracestep(words_of(fit + "--recompute budget=1B"));
  EXPECT_EQ(refused.status, 2);
  const std::size_t least = refused.err.rfind('(') + 1;
  const long long budget = std::stoll(refused.err.substr(least)) - 1;
  const std::string asked = fmt::format("{} --recompute budget={}B", fit, budget);
  EXPECT_EQ(run_tracestep(words_of(asked)).status, 2);
  const ProgramRun found = run_tracestep(words_of(asked + " --largest batch"));
  ASSERT_EQ(found.status, 0) << found.err;
  EXPECT_TRUE(contains(found.err, "found no choice")) << found.err;
  const Json row = Json::parse(found.out, "fit").at("rows").items().at(0);
  EXPECT_GE(row.at("batch").as_int(), 1);
  EXPECT_LT(row.at("batch").as_int(), 8);
}

TEST(FitCommandTest, AMarginIsLeftFreeUnlessNoneIsAsked) {
  const std::string fit =
      "fit --memory-limit 1030KiB --format json" + kLongModel;  // 1,023 are held
  const auto result = [](const std::string& arguments) {
    const ProgramRun run = run_tracestep(words_of(arguments));
    EXPECT_EQ(run.status, 0) << run.err;
    return Json::parse(run.out, "fit");
  };
  const Json tight = result(fit), exactly = result(fit + " --margin 0");
  EXPECT_EQ(tight.at("rows").items()[0].at("status").as_string(), "tight");
  for (const Json& row : tight.at("tables").at("remedies").at("rows").items()) {
    EXPECT_LE(row.at("peak_bytes").as_int(), (1030 << 10) * 95 / 100);
  }
  EXPECT_EQ(exactly.at("rows").items()[0].at("status").as_string(), "ok");
  EXPECT_THAT(run_tracestep(words_of("fit --memory-limit 1030KiB" + kLongModel)).out,
              ::testing::StartsWith("It fits with "));
}

// A number alone is one of gigabytes to a person, and of bytes to a program.
TEST(FitCommandTest, ALimitWithoutAUnitIsRefused) {
  const ProgramRun run = run_tracestep(words_of("fit --size tiny --memory-limit 24"));
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.err, ::testing::HasSubstr("24GiB"));
}

// The task that needs the least is said where none fits, and what it holds.
TEST(FitCommandTest, WhereNothingFitsItSaysHowLittleWould) {
  const ProgramRun run = run_tracestep(words_of("fit --memory-limit 40KiB" + kLongModel));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, ::testing::HasSubstr("The least that would do is "));
  const ProgramRun tables =
      run_tracestep(words_of("fit --memory-limit 40KiB --tables least,holders" + kLongModel));
  EXPECT_THAT(tables.out, ::testing::HasSubstr("weights and states"));
}

TEST(FitCommandTest, WithoutALimitItAsksForOne) {
  const ProgramRun run = run_tracestep(words_of("fit --size tiny"));
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.err.find("--memory-limit"), std::string::npos);
}

TEST(MemoryCommandTest, AnotherAccountingDecidesTheStatus) {
  const Json result = json_of(
      "--predict --mode forward --ops primitive --size medium,xl --context 512,1024 "
      "--memory-limit 39.4GiB --account-as course-pytorch");
  std::string statuses;
  for (const Json& row : result.at("rows").items()) {
    statuses += row.at("status").as_string() == "ok" ? '+' : '-';
    EXPECT_GT(row.at("accounted_bytes").as_int(), 0);
  }
  EXPECT_EQ(statuses, "+---");  // medium 512, medium 1024, xl 512, xl 1024
  const ProgramRun run = run_tracestep(words_of("memory --account-as course-pytorch --size small"));
  EXPECT_EQ(run.status, 2);
}

TEST(MemoryCommandTest, TheFirstLineSaysWhetherItFitsAndByHowMuch) {
  const auto first_line = [&](const std::string& more) {
    const std::string out =
        run_tracestep(words_of("memory --predict --d-model 32 --d-ff 64 "
                               "--layers 2 --heads 2 --vocab 50 --batch 2 --threads 2 " +
                               more))
            .out;
    return out.substr(0, out.find('\n'));
  };
  EXPECT_THAT(
      first_line("--context 64 --memory-limit 1000KiB"),
      ::testing::StartsWith("It does not fit: at batch 2, context 64, fp32 the peak is "
                            "1023.14 KiB, 23.14 KiB above the limit of 1000.00 KiB; with --"));
  EXPECT_EQ(first_line("--context 64 --memory-limit 16MiB"),
            "It fits: at batch 2, context 64, fp32 the peak is 1023.14 KiB, 15.00 MiB below the "
            "limit of 16.00 MiB");
  EXPECT_EQ(first_line("--context 8,64 --memory-limit 1000KiB"), "1 of 2 steps fit in 1000.00 KiB");
}

}  // namespace
}  // namespace tracestep
