// Training by either executor: each has bits of its own, which depend neither on the number of
// threads nor on a kill. Between the two, sums of products are rounded differently; one can finish
// what the other began.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>

#include "base/json.h"
#include "cli/run_binary.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;

class ExecutorsTest : public ::testing::Test {
 protected:
  ExecutorsTest() {
    fs::copy_file(testing::source_folder() / "tests/cli/checkpoint_1/tokens.bin",
                  folder_ / "tokens.bin");
  }

  ProgramRun train(const std::string& more, RunHow how = {}) const {
    how.folder = folder_.path();
    return run_tracestep(
        words_of("train --tokens tokens.bin --token-dtype uint16 --vocab 16 --d-model 8 --d-ff 8 "
                 "--layers 2 --heads 2 --batch 2 --context 4 --clip 1 --format json " +
                 fmt::format("--lr {} ", lr_) + more),
        how);
  }
  // The weights of a run in one go.
  std::string results_of(const std::string& more) const {
    const ProgramRun run = train("--save w.safetensors " + more);
    EXPECT_EQ(run.status, 0) << run.err;
    return content_of(folder_ / "w.safetensors");
  }

  static double loss_of(const ProgramRun& run) {
    EXPECT_EQ(run.status, 0) << run.err;
    return Json::parse(run.out, "train").at("rows").items()[0].at("loss").as_double();
  }

  TempFolder folder_;
  double lr_ = 0.01;
};

TEST_F(ExecutorsTest, TwoHundredStepsLeaveTheSameBitsWithAnyNumberOfThreads) {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const char* executor : {"eager", "compiled"}) {
      const std::string run =
          fmt::format("--steps 200 --precision {} --executor {} ", precision, executor);
      const std::string expected = results_of(run + "--threads 1");
      EXPECT_TRUE(results_of(run + "--threads 3") == expected) << precision << " " << executor;
      EXPECT_TRUE(results_of(run) == expected) << precision << " " << executor << ", all cores";
    }
  }
}

// With larger steps of so few tokens, any two ways to round to bfloat16 part.
TEST_F(ExecutorsTest, TwoHundredStepsEndNearEachOther) {
  lr_ = 0.003;
  for (const auto& [precision, bound] : {std::pair{"fp32", 1e-3}, std::pair{"bf16", 0.02}}) {
    const std::string run = fmt::format("--steps 200 --precision {} --executor ", precision);
    EXPECT_NEAR(loss_of(train(run + "compiled")), loss_of(train(run + "eager")), bound)
        << precision;
  }
}

// Ends the process in the middle of its steps, when it has saved some.
void kill_after_a_save(pid_t child, const fs::path& latest) {
  for (int i = 0; i < 10'000 && !fs::exists(latest); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ::kill(child, SIGKILL);
}

TEST_F(ExecutorsTest, AKilledRunIsFinishedByEitherAndToTheSameBitsByItsOwn) {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const auto& [first, second] :
         {std::pair{"eager", "compiled"}, std::pair{"compiled", "eager"},
          std::pair{"compiled", "compiled"}}) {
      const std::string common =
          fmt::format("--threads 1 --precision {} --checkpoint {} ", precision, first);
      const ProgramRun killed =
          train(common + fmt::format("--checkpoint-every 20 --steps 100000 --executor {}", first),
                {.while_running = [&](pid_t child) {
                  kill_after_a_save(child, folder_ / first / "latest");
                }});
      ASSERT_EQ(killed.status, 128 + SIGKILL) << killed.err;
      // More steps than were made in those milliseconds.
      const std::string steps = "--steps 1000 ";
      const ProgramRun resumed = train(
          common + steps + fmt::format("--executor {} --resume --save r.safetensors", second));
      ASSERT_EQ(resumed.status, 0) << resumed.err;
      const auto row = Json::parse(resumed.out, "train").at("rows").items()[0];
      EXPECT_GE(row.at("resumed_from").as_int(), 20);
      EXPECT_LT(row.at("resumed_from").as_int(), 1000);
      EXPECT_TRUE(std::isfinite(loss_of(resumed)));
      // How near a run by both executors stays is tested on fewer steps (train/loop_test.cpp).
      if (std::string_view(first) == second) {
        EXPECT_TRUE(content_of(folder_ / "r.safetensors") ==
                    results_of(steps + fmt::format("--threads 1 --precision {} --executor {}",
                                                   precision, second)))
            << precision << " " << first;
      }
      fs::remove_all(folder_ / first);
    }
  }
}

TEST_F(ExecutorsTest, AMemoryLimitAtLeavesAndArenaPassesAndOneByteLessDoesNot) {
  const auto row_with = [](const std::string& more, int status = 0) {
    const ProgramRun run = run_tracestep(
        words_of("bench --vocab 31 --d-model 16 --d-ff 24 --layers 2 --heads 2 --batch 2 "
                 "--context 7 --mode step --executor compiled --steps 1 --warmup 1 --threads 1 "
                 "--format json " +
                 more));
    EXPECT_EQ(run.status, status) << run.err;
    return Json::parse(run.out, "bench").at("rows").items()[0];
  };
  const std::int64_t peak = row_with("").at("predicted_peak_bytes").as_int();
  EXPECT_EQ(row_with(fmt::format("--memory-limit {}B", peak)).at("status"), Json("ok"));
  EXPECT_EQ(row_with(fmt::format("--memory-limit {}B", peak - 1), 4).at("status"), Json("oom"));
}

}  // namespace
}  // namespace tracestep
