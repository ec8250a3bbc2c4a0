// Sessions in a process that does other things too: several of them, threads, a fork, faults in the
// middle, the loss scale of float16.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "capi/opened.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;

tracestep_run* loaded(const Opened& opened) {
  tracestep_run* const run = opened.plan(TRACESTEP_STEP);
  start(run);
  EXPECT_EQ(tracestep_load(run), TRACESTEP_OK) << tracestep_message();
  return run;
}

float stepped(tracestep_run* run, std::int64_t number) {
  EXPECT_EQ(tracestep_rate(run, 0, 1e-2, number), TRACESTEP_OK) << tracestep_message();
  return loss_of(run);
}

std::vector<float> losses_of_ten_steps() {
  const Opened opened;
  tracestep_run* const run = loaded(opened);
  std::vector<float> out;
  for (std::int64_t t = 1; t <= 10; ++t) out.push_back(stepped(run, t));
  return out;
}

TEST(ProcessTest, SessionsOfTwoThreadsDoNotDisturbEachOther) {
  const std::vector<float> alone = losses_of_ten_steps();
  std::vector<float> found[3];
  std::vector<std::thread> threads;
  for (auto& one : found) threads.emplace_back([&one] { one = losses_of_ten_steps(); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& one : found) EXPECT_EQ(one, alone);
}

TEST(ProcessTest, ThreadsOfOneSessionTakeTurns) {
  const Opened opened;
  tracestep_run* const run = loaded(opened);
  std::vector<std::thread> threads;
  ASSERT_EQ(tracestep_rate(run, 0, 0.0, 1), TRACESTEP_OK);
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([run] {
      for (int k = 0; k < 5; ++k) EXPECT_EQ(tracestep_go(run, nullptr), TRACESTEP_OK);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(stepped(run, 1), 0.0F);
}

TEST(ProcessTest, MessagesBelongToTheirThread) {
  const Opened opened;
  EXPECT_EQ(tracestep_plan(opened.session, nullptr, TRACESTEP_STEP, nullptr), TRACESTEP_USAGE);
  std::thread([] { EXPECT_STREQ(tracestep_message(), ""); }).join();
  EXPECT_THAT(tracestep_message(), HasSubstr("out"));
}

TEST(ProcessTest, AForkIsRefusedAndItsParentGoesOn) {
  const Opened opened;
  tracestep_run* const run = loaded(opened);
  const float first = stepped(run, 1);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_refused = tracestep_go(run, nullptr) == TRACESTEP_USAGE &&
                            std::strstr(tracestep_message(), "fork") != nullptr;
    tracestep_close(opened.session);
    ::_exit(is_refused ? 7 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_LT(stepped(run, 2), first);
}

TEST(ProcessTest, AnIndexThatIsNoneIsAStatusAndTheNextStepRuns) {
  const Opened opened;
  tracestep_run* const run = loaded(opened);
  for (const tracestep_tensor& x : tensors_of(run)) {
    if (x.role != TRACESTEP_IN || std::string(x.dtype) != "i64" || x.rank == 0) continue;
    const std::vector<std::int64_t> far(static_cast<std::size_t>(x.bytes / 8), 1'000'000);
    ASSERT_EQ(tracestep_set(run, x.name, far.data(), x.bytes), TRACESTEP_OK);
  }
  ASSERT_EQ(tracestep_rate(run, 0, 1e-2, 1), TRACESTEP_OK);
  EXPECT_EQ(tracestep_go(run, nullptr), TRACESTEP_USAGE);
  EXPECT_THAT(tracestep_message(), HasSubstr("1000000"));
  float loss = 0;
  EXPECT_EQ(tracestep_get(run, "loss", &loss, sizeof loss), TRACESTEP_USAGE);
  fill_inputs(run);
  EXPECT_GT(stepped(run, 1), 0.0F);
}

TEST(ProcessTest, AnEndedRunLeavesTheWeightsToTheNext) {
  const Opened opened;
  tracestep_run* const run = loaded(opened);
  const float first = stepped(run, 1);
  const std::vector<float> weights = weights_of(run);
  tracestep_end(run);
  tracestep_run* const next = opened.plan(TRACESTEP_STEP);
  start(next);
  EXPECT_EQ(weights_of(next), weights);
  EXPECT_LT(stepped(next, 2), first);
}

TEST(ProcessTest, TheLossScaleOfFloat16GrowsAndShrinksAsAsked) {
  tracestep_options options{};
  options.size = sizeof options;
  options.words = "device=cpu threads=1 precision=fp16";
  options.clip = std::numeric_limits<double>::infinity();
  options.scale_growth = 4;
  options.scale_backoff = 0.25;
  options.scale_interval = 2;
  const Opened opened(options);
  tracestep_run* const run = loaded(opened);
  const auto scale_after = [&](std::int64_t number) {
    stepped(run, number);
    float scale = 0;
    EXPECT_EQ(tracestep_get(run, "loss_scale", &scale, sizeof scale), TRACESTEP_OK);
    return scale;
  };
  float scale = 256;
  ASSERT_EQ(tracestep_set(run, "loss_scale", &scale, sizeof scale), TRACESTEP_OK);
  EXPECT_EQ(scale_after(1), 256);
  EXPECT_EQ(scale_after(2), 1024);
  float norm = 0;
  ASSERT_EQ(tracestep_get(run, "grad_norm", &norm, sizeof norm), TRACESTEP_OK);
  EXPECT_GT(norm, 0.0F);
  EXPECT_LT(norm, 1000.0F);  // of the gradients without the scale
  const std::vector<float> weights = weights_of(run);
  scale = 0x1p60F;
  ASSERT_EQ(tracestep_set(run, "loss_scale", &scale, sizeof scale), TRACESTEP_OK);
  EXPECT_EQ(scale_after(3), 0x1p58F);
  EXPECT_EQ(weights_of(run), weights);
  float skipped = 0;
  ASSERT_EQ(tracestep_get(run, "loss_scale.skipped_steps", &skipped, sizeof skipped), TRACESTEP_OK);
  EXPECT_EQ(skipped, 1);
  options.scale_backoff = -1;
  EXPECT_EQ(Opened(options).status, TRACESTEP_USAGE);
}

}  // namespace
}  // namespace tracestep
