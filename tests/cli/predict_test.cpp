// predict and fit with times: which device they are of, what a limit, a budget and a history
// change, and that no file at hand loses what was measured. With a calibration that was not
// measured.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/host_memory.h"
#include "cli/options.h"
#include "cli/planted_calibration.h"
#include "cli/run_binary.h"
#include "support/memory_root.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kModel =
    " --d-model 32 --d-ff 64 --layers 2 --heads 2 --vocab 50 --batch 2 --threads 1";
constexpr const char* kHistory = "c.history.jsonl";

class PredictCommandTest : public ::testing::Test {
 protected:
  PredictCommandTest() {
    RunSpec run;
    run.place.threads = 1;
    const Json identity = calibration_identity(cli::environment_of({}, run), "cpu");
    planted_ = planted_calibration(identity);
    folder_.write("c.json", text_of(planted_));
  }

  ProgramRun run(const std::string& command, RunHow how = {}) const {
    how.folder = folder_.path();
    return run_tracestep(words_of(command), how);
  }
  ProgramRun predict(const std::string& more, const RunHow& how = {}) const {
    const bool runs = more.find("--check") != std::string::npos;
    return run("predict --calibration c.json --no-spot-check" +
                   std::string(runs ? " --warmup 0 --steps 1" : "") + kModel + more,
               how);
  }
  Json json_of(const std::string& command) const {
    const ProgramRun ended = run(command + " --format json");
    EXPECT_EQ(ended.status, 0) << command << "\n" << ended.err;
    return Json::parse(ended.out, command);
  }
  Json first_row(const std::string& command) const {
    return json_of(command).at("rows").items()[0];
  }
  std::ptrdiff_t checks() const { return std::ranges::count(content_of(folder_ / kHistory), '\n'); }

  Calibration planted_;
  TempFolder folder_;
};

TEST_F(PredictCommandTest, APublishedDeviceRunsTheProgramOfAGpu) {
  for (const std::string command : {"predict", "fit"}) {
    const std::string asked = command + " --size tiny --context 64 --published H100";
    const Json implied = first_row(asked), said = first_row(asked + " --device cuda");
    EXPECT_EQ(implied.at("peak_bytes"), said.at("peak_bytes"));
    EXPECT_EQ(implied.at("predicted_ms"), said.at("predicted_ms"));
    const ProgramRun refused = run(asked + " --device cpu");
    EXPECT_EQ(refused.status, 2);
    EXPECT_THAT(refused.err, HasSubstr("give --device cuda"));
  }
  EXPECT_THAT(first_row("fit --size tiny --published H100").at("command").as_string(),
              HasSubstr("--device cuda"));
  EXPECT_THAT(run("predict --published h10").err, HasSubstr("did you mean H100?"));
}

TEST_F(PredictCommandTest, OptionsWithoutEffectAreRefused) {
  const auto refusal = [&](const std::string& command) {
    const ProgramRun ended = run(command);
    EXPECT_EQ(ended.status, 2) << command;
    return ended.err;
  };
  const std::string here = "predict --calibration c.json --no-spot-check" + kModel;
  EXPECT_THAT(refusal(here + " --steps 3"), HasSubstr("[--steps] no step runs"));
  EXPECT_THAT(refusal(here + " --warmup 3"), HasSubstr("or give --check"));
  EXPECT_THAT(refusal(here + " --link-us 3"), HasSubstr("one rank alone uses no link"));
  const std::string there = "predict --size tiny --context 64 --published H100";
  EXPECT_THAT(refusal(there + " --no-spot-check"), HasSubstr("[--no-spot-check]"));
  for (const std::string command : {"predict", "fit"}) {
    EXPECT_THAT(refusal(command + " --size tiny --published H100 --calibration c.json"),
                HasSubstr("[--calibration] times of H100 are from its data sheet"));
  }
}

// With --device cpu the limit is what this machine has free; without --device another device may be
// meant, and there is none.
TEST_F(PredictCommandTest, FitOfThisCpuHasTheMemoryOfThisMachine) {
  const testing::MemoryRoot root(800 << 20);
  const RunHow how{.environment = {root.variable()}};
  const std::string fit = "fit --calibration c.json" + kModel;
  const ProgramRun ended = run(fit + " --device cpu --format json", how);
  ASSERT_EQ(ended.status, 0) << ended.err;
  const Json answer = Json::parse(ended.out, "fit");
  const Json& row = answer.at("rows").items()[0];
  EXPECT_EQ(row.at("limit_bytes").as_int(), usable_part(800 << 20));
  EXPECT_GT(row.at("predicted_ms").as_double(), 0);
  EXPECT_THAT(run(fit + " --device cpu", how).out, HasSubstr("the limit is 720.00 MiB"));
  EXPECT_EQ(run(fit + " --device cpu --memory-limit 1GiB --format json").status, 0);
  const ProgramRun unnamed = run(fit, how);
  EXPECT_EQ(unnamed.status, 2);
  EXPECT_THAT(unnamed.err, HasSubstr("--device cpu takes what this machine has free"));
}

// A calibration with a grid of products, as a GPU's has one, in which each takes `us`.
Calibration with_products(Calibration calibration, double us) {
  for (const char* orders : {"kk", "kn", "mn"}) {
    for (const std::int64_t m : {8, 64}) {
      for (const std::int64_t n : {8, 64}) {
        for (const std::int64_t k : {8, 64}) {
          calibration.products.push_back(
              {fmt::format("matmul f32,f32>f32 {}", orders), {m, n, k}, us});
        }
      }
    }
  }
  return calibration;
}

TEST_F(PredictCommandTest, ProductsOfTheModelsSizesAreTimedOnceAndKept) {
  const std::filesystem::path file = folder_ / "c.json";
  const auto sized = [&] {
    return Json::parse(content_of(file), "c.json").at("content").at("sized_products").size();
  };
  const std::string alone = content_of(file);
  EXPECT_EQ(predict("").status, 0);
  EXPECT_EQ(content_of(file), alone);  // there is no grid

  folder_.write("c.json", text_of(with_products(planted_, 1e6)));
  const ProgramRun first = predict(" --format json");
  ASSERT_EQ(first.status, 0) << first.err;
  const std::string kept = content_of(file);
  const std::size_t count = sized();
  EXPECT_GE(count, 10u);
  const auto ms = [](const ProgramRun& ended) {
    return Json::parse(ended.out, "predict").at("rows").items()[0].at("predicted_ms").as_double();
  };
  EXPECT_LT(ms(first), 1e3) << "a second for each product, by the grid";
  const ProgramRun second = predict(" --format json");
  EXPECT_EQ(ms(second), ms(first));
  EXPECT_EQ(content_of(file), kept);
  EXPECT_EQ(predict(" --context 20").status, 0);
  EXPECT_GT(sized(), count);

  const std::string quick = text_of(with_products(planted_, 1e-3));
  folder_.write("c.json", quick);
  EXPECT_THAT(predict("").err, HasSubstr("other work keeps the device busy"));
  EXPECT_EQ(content_of(file), quick);
}

TEST_F(PredictCommandTest, RanksNeedALinkAndAGpuEach) {
  const std::string command = "predict --size tiny --context 64 --published H100 --parallel dp=2";
  const Json row = first_row(command + " --link-gb-s 300");
  EXPECT_GT(row.at("collectives_ms").as_double(), row.at("exposed_ms").as_double());
  const Json alone = first_row("predict --size tiny --context 64 --published H100");
  EXPECT_EQ(alone.find("collectives_ms"), nullptr);
  EXPECT_EQ(row.at("peak_bytes"), first_row("memory --predict --size tiny --context 64 --mode step "
                                            "--device cuda --parallel dp=2")
                                      .at("peak_bytes"));
  const Json reached = first_row(command);  // 73 % of NVLink's 450 GB/s
  EXPECT_EQ(reached.at("predicted_ms"),
            first_row(command + " --link-gb-s 328.5").at("predicted_ms"));
  const ProgramRun of_two_hosts =
      run("predict --size tiny --context 64 --batch 16 --published H100 --parallel dp=16");
  EXPECT_EQ(of_two_hosts.status, 2);
  EXPECT_THAT(of_two_hosts.err, HasSubstr("16 of H100 SXM are more than one host has"));
  const ProgramRun on_cpu = predict(" --parallel dp=2 --link-gb-s 300");
  EXPECT_EQ(on_cpu.status, 2);
  EXPECT_THAT(on_cpu.err, HasSubstr("ranks on one CPU"));
  const ProgramRun without_ranks =
      run("predict --size tiny --context 64 --published H100 --link-gb-s 300");
  EXPECT_EQ(without_ranks.status, 2);
  EXPECT_THAT(without_ranks.err, HasSubstr("one rank alone uses no link"));
}

// Two commands, one step, one time, and the same words of the link.
TEST_F(PredictCommandTest, FitAndPredictSayTheSameOfAStepOnSeveralRanks) {
  for (const std::string parallel : {"dp=4", "dp=4,shard=3", "dp=2,tp=2", "none"}) {
    const std::string flag = parallel == "none" ? "" : " --parallel " + parallel;
    const std::string step = " --size tiny --context 64 --published H100" + flag;
    EXPECT_EQ(first_row("fit" + step).at("predicted_ms"),
              first_row("predict" + step).at("predicted_ms"))
        << parallel;
    for (const std::string command : {"fit", "predict"}) {
      const std::string out = std::regex_replace(run(command + step).out, std::regex("\\s+"), " ");
      const auto has_it = HasSubstr("linked by NVLink at 328 GB/s each way, 73 % of the nominal");
      if (flag.empty()) {
        EXPECT_THAT(out, Not(has_it));
      } else {
        EXPECT_THAT(out, has_it) << command;
      }
    }
  }
}

TEST_F(PredictCommandTest, SharesOfThePeakAreThoseOfTheTimeItSays) {
  const std::string command =
      "predict --size tiny --context 64 --batch 4 --precision bf16 --attention naive ";
  const Json row = first_row(command + "--published h100");
  const double seconds = row.at("predicted_ms").as_double() * 1e-3;
  EXPECT_NEAR(row.at("tokens_per_s").as_double(), 256 / seconds, 1e-6 / seconds);
  const double flops = 3 * forward_flops(preset("tiny"), 4, 64);
  EXPECT_NEAR(row.at("mfu_percent").as_double(), 100 * flops / (seconds * 989e12), 1e-9);
  EXPECT_NEAR(row.at("mfu_percent").as_double(), row.at("hfu_percent").as_double(), 1e-9);
  const Json again = first_row(command + "--published h100 --recompute blocks");
  EXPECT_GT(again.at("hfu_percent").as_double(), again.at("mfu_percent").as_double());
  EXPECT_LT(again.at("mfu_percent").as_double(), row.at("mfu_percent").as_double());
  EXPECT_THAT(run(command + "--published h100").out,
              HasSubstr("shares of the dense peak of the data sheet, 989 TFLOP/s in bf16"));
  EXPECT_EQ(first_row("predict --calibration c.json --no-spot-check --context 8" + kModel)
                .find("mfu_percent"),
            nullptr);
}

TEST_F(PredictCommandTest, WhatADeviceHasNoPeakOfHasNoTime) {
  const std::string tiny = " --size tiny --context 64 --published ";
  EXPECT_THAT(run("predict" + tiny + "t4 --precision bf16").err,
              HasSubstr("T4 has no products in bf16 by its data sheet"));
  EXPECT_EQ(run("predict" + tiny + "t4 --precision fp16").status, 0);
  EXPECT_THAT(run("predict" + tiny + "mi300x").err, HasSubstr("no times of MI300X"));
  const Json fits = first_row("fit" + tiny + "mi300x");
  EXPECT_GT(fits.at("limit_bytes").as_int(), std::int64_t{191} << 30);
  EXPECT_TRUE(fits.find("predicted_ms") == nullptr || fits.at("predicted_ms").is_null());
  EXPECT_LT(first_row("predict" + tiny + "h100 --precision tf32").at("predicted_ms").as_double(),
            first_row("predict" + tiny + "h100 --precision fp32").at("predicted_ms").as_double());
}

TEST_F(PredictCommandTest, ANameIsTakenAsItIsTyped) {
  for (const std::string name : {"4090", "rtx-4090", "'RTX 4090'"}) {
    EXPECT_THAT(
        first_row("predict --size tiny --context 64 --published " + name).at("source").as_string(),
        HasSubstr("from published peaks of RTX 4090"));
  }
  // Notes are broken into lines of a screen.
  const auto said = [&](const std::string& name) {
    std::string out = run("predict --size tiny --context 64 --published " + name).out;
    std::ranges::replace(out, '\n', ' ');
    return out;
  };
  EXPECT_THAT(
      said("a100"),
      HasSubstr("peaks of A100 SXM 80 GB: nothing was measured on it; \"a100\" is taken for "
                "it, not for A100 SXM 40 GB or A100 PCIe 40 GB or A100 PCIe 80 GB"));
  EXPECT_THAT(said("h100"), HasSubstr("\"h100\" is taken for it, not for H100 PCIe or H100 NVL"));
  EXPECT_EQ(run("predict --size tiny --published 80g").status, 2);
  EXPECT_THAT(run("show --devices").out, HasSubstr("GB200 NVL72 data sheet"));
}

TEST_F(PredictCommandTest, ALimitDecidesTheStatus) {
  const std::string command = "predict --calibration c.json --no-spot-check --context 8" + kModel;
  const std::int64_t peak = first_row(command).at("peak_bytes").as_int();
  const auto status = [&](std::int64_t limit) {
    return first_row(command + fmt::format(" --memory-limit {}B", limit)).at("status").as_string();
  };
  EXPECT_EQ(status(peak), "ok");
  EXPECT_EQ(status(peak - 1), "oom");
  EXPECT_THAT(predict(fmt::format(" --context 8 --memory-limit {}B", peak - 1)).out,
              HasSubstr("the step does not fit in "));
  EXPECT_EQ(first_row("predict --size xl --context 2048 --published 'RTX 4060 Laptop'")
                .at("status")
                .as_string(),
            "oom");
}

TEST_F(PredictCommandTest, ABudgetThatCannotBeMetIsTheStatusOfItsRow) {
  const std::string grid = " --context 64,8 --recompute budget=500KiB";
  const ProgramRun checked = predict(grid + " --check --format json");
  ASSERT_EQ(checked.status, 0) << checked.err;
  const Json rows = Json::parse(checked.out, "predict").at("rows");
  EXPECT_EQ(rows.items()[0].at("status").as_string(), "oom");
  EXPECT_TRUE(rows.items()[0].at("predicted_ms").is_null());
  EXPECT_GT(rows.items()[0].at("peak_bytes").as_int(), 500 << 10);
  EXPECT_EQ(rows.items()[1].at("status").as_string(), "ok");
  EXPECT_EQ(checks(), 1);
  EXPECT_THAT(predict(grid).out, HasSubstr("the least peak is"));
  EXPECT_EQ(predict(" --context 64 --recompute budget=500KiB").status, 2);
}

TEST_F(PredictCommandTest, WhatWasCheckedIsShownThoughItCannotBeKept) {
  std::filesystem::create_symlink("nowhere/history", folder_ / kHistory);
  const ProgramRun checked = predict(" --context 8,16 --check --format csv");
  EXPECT_EQ(checked.status, 0);
  EXPECT_EQ(std::ranges::count(checked.out, '\n'), 3) << checked.out;
  EXPECT_THAT(checked.err, HasSubstr("not kept"));
}

TEST_F(PredictCommandTest, ACheckWaitsForAnotherThatAddsToTheHistory) {
  folder_.write(kHistory, "");
  const int file = ::open((folder_ / kHistory).c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(file, LOCK_EX), 0);
  const ProgramRun checked = predict(
      " --context 8 --check", {.while_running = [file](pid_t) { ::close(file); }, .delay_ms = 700});
  EXPECT_EQ(checked.status, 0);
  EXPECT_EQ(checks(), 1) << checked.err;
}

// A calibration would take half a minute of the processor; it gets three seconds.
TEST_F(PredictCommandTest, ACalibrationThatCannotBeKeptIsNotMeasured) {
  const RunHow short_time{.before_start = [] {
    const rlimit seconds{3, 3};
    ::setrlimit(RLIMIT_CPU, &seconds);
  }};
  EXPECT_EQ(run("predict --calibrate --calibration /dev/full", short_time).status, 5);
  const int file =
      ::open((folder_ / "new.json.being-measured").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::flock(file, LOCK_EX), 0);
  const ProgramRun second = run("predict --calibrate --calibration new.json", short_time);
  ::close(file);
  EXPECT_EQ(second.status, 5);
  EXPECT_THAT(second.err, HasSubstr("another process writes"));
}

TEST_F(PredictCommandTest, TheHistoryTellsWhatWasPredictedAndTheCorrectionIsSaid) {
  ASSERT_EQ(predict(" --context 8 --check").status, 0);
  const ProgramRun second = predict(" --context 8 --check --format json");
  const Json row = Json::parse(second.out, "predict").at("rows").items()[0];
  EXPECT_NE(row.at("predicted_ms"), row.at("model_ms"));
  const Json kept =
      json_of("predict --history --calibration c.json --threads 1").at("rows").items()[1];
  for (const char* column : {"predicted_ms", "model_ms", "measured_ms", "error_percent"}) {
    EXPECT_EQ(kept.at(column), row.at(column)) << column;
  }
  EXPECT_THAT(predict(" --context 8").out, HasSubstr("as 2 checked steps of the history suggest"));
  const std::string fit = "fit --context 8 --memory-limit 1GiB --calibration c.json" + kModel;
  EXPECT_THAT(run(fit).out, HasSubstr("as 2 checked steps of the history suggest"));
}

TEST_F(PredictCommandTest, DamagedLinesOfAHistoryAreLeftOut) {
  ASSERT_EQ(predict(" --context 8 --check").status, 0);
  const std::string line = content_of(folder_ / kHistory);
  folder_.write(kHistory, line + "[]\n" + line + line.substr(0, line.size() / 2));
  const ProgramRun next = predict(" --context 8 --check");
  EXPECT_EQ(next.status, 0);
  EXPECT_THAT(next.err, HasSubstr("line 2"));
  EXPECT_THAT(next.err, HasSubstr("2 lines are left out"));
  // The line after one that was cut short is a line of its own.
  const Json history = json_of("predict --history --calibration c.json --threads 1");
  EXPECT_EQ(history.at("rows").size(), 3u);
}

}  // namespace
}  // namespace tracestep
