// The C interface as a caller in C sees it: statuses, memory of the caller's, order, and what stays
// usable behind a failure.
#include "capi/tracestep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "capi/opened.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;

std::string written(const TempFolder& folder, const char* text) {
  const std::filesystem::path file = folder.path() / "program.txt";
  std::ofstream(file) << text;
  return file.string();
}

TEST(TracestepTest, ALossFallsAndForwardSeesTheSameWeights) {
  const Opened opened;
  tracestep_run* const step = opened.plan(TRACESTEP_STEP);
  start(step);
  ASSERT_EQ(tracestep_load(step), TRACESTEP_OK) << tracestep_message();
  tracestep_run* const forward = opened.plan(TRACESTEP_FORWARD);
  start(forward);
  const float before = loss_of(forward);
  for (std::int64_t t = 1; t <= 5; ++t) {
    ASSERT_EQ(tracestep_rate(step, 0, 1e-2, t), TRACESTEP_OK) << tracestep_message();
    const float loss = loss_of(step);
    if (t == 1) {
      EXPECT_EQ(loss, before);
    }
  }
  EXPECT_LT(loss_of(forward), before);
}

TEST(TracestepTest, AWordOfTheTaskIsSaidToBeTheCallers) {
  for (const std::string word : {"grad_accum_dtype=low", "parallel=dp=2", "lora=r=4", "batch=2",
                                 "accumulate=4", "optimizer=muon"}) {
    const Opened opened(("device=cpu threads=1 precision=bf16 " + word).c_str(), TRACESTEP_ADAMW,
                        4);
    EXPECT_EQ(opened.status, TRACESTEP_USAGE) << word;
    const std::string name = word.substr(0, word.find('='));
    EXPECT_THAT(tracestep_message(), HasSubstr(name + " is an option of the commands alone"));
  }
}

TEST(TracestepTest, BytesAreKnownBeforeAnythingIsAllocatedAndDividedAmongOwners) {
  const Opened opened;
  tracestep_run* const run = opened.plan(TRACESTEP_STEP);
  tracestep_bytes all{}, lent{};
  ASSERT_EQ(tracestep_size(run, &all), TRACESTEP_OK);
  EXPECT_GT(all.peak, 0);
  EXPECT_EQ(all.own, all.peak);
  const auto tensors = tensors_of(run);
  const auto arena = std::ranges::find(tensors, int{TRACESTEP_ARENA}, &tracestep_tensor::role);
  ASSERT_NE(arena, tensors.end());
  void* const memory =
      std::aligned_alloc(64, static_cast<std::size_t>((arena->bytes + 63) / 64 * 64));
  ASSERT_EQ(tracestep_lend(opened.session, "arena", memory, arena->bytes), TRACESTEP_OK);
  ASSERT_EQ(tracestep_size(run, &lent), TRACESTEP_OK);
  EXPECT_EQ(lent.lent, arena->bytes);
  EXPECT_EQ(lent.own, all.peak - arena->bytes);
  start(run);
  ASSERT_EQ(tracestep_rate(run, 0, 0.0, 1), TRACESTEP_OK);
  EXPECT_TRUE(std::isfinite(loss_of(run)));
  tracestep_end(run);
  std::free(memory);
}

// Blocks of the caller's for every parameter and moment, by the block that the run wants.
class OwnedLeaves {
 public:
  OwnedLeaves(tracestep_session* session, const tracestep_run* run) {
    std::map<std::string, std::int64_t> sizes;
    for (const tracestep_tensor& x : tensors_of(run)) {
      if (!is_owned(x)) continue;
      std::int64_t& size = sizes[key_of(x)];
      size = std::max(size, x.offset + x.bytes);
    }
    for (const auto& [key, size] : sizes) {
      blocks_[key] = static_cast<std::byte*>(
          std::aligned_alloc(64, static_cast<std::size_t>((size + 63) / 64 * 64)));
    }
    for (const tracestep_tensor& x : tensors_of(run)) {
      if (!is_owned(x)) continue;
      std::byte* const at = blocks_[key_of(x)] + x.offset;
      for (std::int64_t i = 0; i < x.bytes / 4; ++i) {
        reinterpret_cast<float*>(at)[i] = x.role == TRACESTEP_STATE ? 0.25F : 0.5F;
      }
      EXPECT_EQ(tracestep_lend(session, x.name, at, x.bytes), TRACESTEP_OK);
    }
  }
  ~OwnedLeaves() {
    for (const auto& [key, block] : blocks_) std::free(block);
  }
  OwnedLeaves(const OwnedLeaves&) = delete;
  OwnedLeaves& operator=(const OwnedLeaves&) = delete;

  const float* find(const tracestep_tensor& x) const {
    return reinterpret_cast<const float*>(blocks_.at(key_of(x)) + x.offset);
  }
  static bool is_owned(const tracestep_tensor& x) {
    return (x.role == TRACESTEP_PARAMETER || x.role == TRACESTEP_STATE) &&
           std::string(x.dtype) == "f32";
  }

 private:
  static std::string key_of(const tracestep_tensor& x) {
    return *x.block != 0 ? std::string("block ") + x.block : x.name;
  }
  std::map<std::string, std::byte*> blocks_;
};

TEST(TracestepTest, LentWeightsAndMomentsKeepTheirValuesAndAreUpdatedInPlace) {
  const Opened opened;
  tracestep_run* const run = opened.plan(TRACESTEP_STEP);
  const OwnedLeaves owned(opened.session, run);
  start(run);
  for (const tracestep_tensor& x : tensors_of(run)) {
    if (OwnedLeaves::is_owned(x)) {
      EXPECT_EQ(owned.find(x)[0], x.role == TRACESTEP_STATE ? 0.25F : 0.5F) << x.name;
    }
  }
  ASSERT_EQ(tracestep_rate(run, 0, 1e-2, 1), TRACESTEP_OK);
  loss_of(run);
  std::vector<float> seen(1);
  for (const tracestep_tensor& x : tensors_of(run)) {
    if (!OwnedLeaves::is_owned(x) || x.bytes == 0) continue;
    EXPECT_NE(owned.find(x)[0], x.role == TRACESTEP_STATE ? 0.25F : 0.5F) << x.name;
    seen.resize(static_cast<std::size_t>(x.bytes / 4));
    ASSERT_EQ(tracestep_get(run, x.name, seen.data(), x.bytes), TRACESTEP_OK);
    EXPECT_EQ(seen[0], owned.find(x)[0]) << x.name;
  }
}

TEST(TracestepTest, LeavesOfABlockMustLieSideBySide) {
  const Opened opened;
  const TempFolder folder;
  const std::string file = written(folder, R"(program "pair" {
  input %x : f32[3,16]
  parameter %a.q : f32[16,16]
  parameter %a.k : f32[16,16]
  %0 : f32[3,16] = matmul(%x, %a.q) {transpose_b=true} @ a.q forward
  %1 : f32[3,16] = matmul(%x, %a.k) {transpose_b=true} @ a.k forward
  %2 : f32[3,16] = mul(%0, %1) @ loss forward
  %3 : f32[] = sum(%2) {axes=[0,1]} @ loss forward
  output "loss" = %3
})");
  tracestep_run* run = nullptr;
  ASSERT_EQ(tracestep_plan(opened.session, file.c_str(), TRACESTEP_STEP, &run), TRACESTEP_OK)
      << tracestep_message();
  alignas(64) static float place[3][256];
  ASSERT_EQ(tracestep_lend(opened.session, "a.q", place[0], sizeof place[0]), TRACESTEP_OK);
  EXPECT_EQ(tracestep_start(run), TRACESTEP_USAGE);
  EXPECT_THAT(tracestep_message(), HasSubstr("side by side"));
  ASSERT_EQ(tracestep_lend(opened.session, "a.k", place[2], sizeof place[0]), TRACESTEP_OK);
  EXPECT_EQ(tracestep_start(run), TRACESTEP_USAGE);
  ASSERT_EQ(tracestep_lend(opened.session, "a.k", place[1], sizeof place[0]), TRACESTEP_OK);
  EXPECT_EQ(tracestep_start(run), TRACESTEP_OK) << tracestep_message();
}

TEST(TracestepTest, MemoryThatIsTooSmallOrCrookedIsRefused) {
  const Opened opened;
  tracestep_run* const run = opened.plan(TRACESTEP_STEP);
  alignas(64) static std::byte place[256];
  ASSERT_EQ(tracestep_lend(opened.session, "arena", place, 1), TRACESTEP_OK);
  EXPECT_EQ(tracestep_start(run), TRACESTEP_USAGE);
  EXPECT_THAT(tracestep_message(), HasSubstr("1 were lent"));
  ASSERT_EQ(tracestep_lend(opened.session, "arena", place + 4, 1 << 30), TRACESTEP_OK);
  EXPECT_EQ(tracestep_start(run), TRACESTEP_USAGE);
  EXPECT_THAT(tracestep_message(), HasSubstr("multiple of 64"));
}

TEST(TracestepTest, MicroBatchesAreOneStep) {
  std::vector<float> weights[2];
  for (const int parts : {1, 2}) {
    const Opened opened("device=cpu threads=1", TRACESTEP_ADAMW, parts);
    tracestep_run* const first = opened.plan(parts == 1 ? TRACESTEP_STEP : TRACESTEP_FIRST);
    start(first);
    ASSERT_EQ(tracestep_load(first), TRACESTEP_OK);
    tracestep_run* update = first;
    if (parts == 2) {
      tracestep_run* const next = opened.plan(TRACESTEP_NEXT);
      start(next);
      loss_of(first);
      loss_of(next);  // of the same batch: the mean is that of one
      update = opened.plan(TRACESTEP_UPDATE);
      ASSERT_EQ(tracestep_start(update), TRACESTEP_OK) << tracestep_message();
    }
    ASSERT_EQ(tracestep_rate(update, 0, 1e-2, 1), TRACESTEP_OK);
    ASSERT_EQ(tracestep_go(update, nullptr), TRACESTEP_OK) << tracestep_message();
    weights[parts - 1] = weights_of(first);
  }
  ASSERT_EQ(weights[0].size(), weights[1].size());
  for (std::size_t i = 0; i < weights[0].size(); ++i)
    EXPECT_NEAR(weights[0][i], weights[1][i], 1e-5);
}

TEST(TracestepTest, OutOfMemoryIsAStatusAndALaterRunWorks) {
  const Opened opened("device=cpu threads=1 memory_limit=4KiB");
  tracestep_run* const run = opened.plan(TRACESTEP_STEP);
  EXPECT_EQ(tracestep_start(run), TRACESTEP_OUT_OF_MEMORY);
  EXPECT_THAT(tracestep_message(), HasSubstr("and the limit is 4.00 KiB"));
  EXPECT_EQ(tracestep_go(run, nullptr), TRACESTEP_USAGE);
  const Opened roomy;
  tracestep_run* const other = roomy.plan(TRACESTEP_STEP);
  start(other);
  ASSERT_EQ(tracestep_rate(other, 0, 0.0, 1), TRACESTEP_OK);
  EXPECT_TRUE(std::isfinite(loss_of(other)));
}

// Each program of a step in micro-batches is below the limit, and all of them together are not.
TEST(TracestepTest, TheLimitIsForAllRunsThatWereStarted) {
  const auto started = [](const std::string& limit, std::int64_t* most) {
    const Opened opened(("device=cpu threads=1 memory_limit=" + limit).c_str(), TRACESTEP_ADAMW, 2);
    int status = TRACESTEP_OK;
    for (const tracestep_kind kind : {TRACESTEP_FIRST, TRACESTEP_NEXT, TRACESTEP_UPDATE}) {
      tracestep_run* const run = opened.plan(kind);
      tracestep_bytes size{};
      EXPECT_EQ(tracestep_size(run, &size), TRACESTEP_OK);
      *most = std::max(*most, size.peak);
      if (status == TRACESTEP_OK) status = tracestep_start(run);
    }
    return status;
  };
  std::int64_t most = 0;
  ASSERT_EQ(started("1GiB", &most), TRACESTEP_OK) << tracestep_message();
  EXPECT_EQ(started(std::to_string(most) + "B", &most), TRACESTEP_OUT_OF_MEMORY);
}

TEST(TracestepTest, MistakesAreStatusesWithWords) {
  EXPECT_EQ(tracestep_interface(), TRACESTEP_INTERFACE);
  EXPECT_EQ(tracestep_open(nullptr, nullptr), TRACESTEP_USAGE);
  EXPECT_EQ(Opened("precison=bf16").status, TRACESTEP_USAGE);
  EXPECT_THAT(tracestep_message(), HasSubstr("precision"));
  EXPECT_EQ(Opened("device=cpu batch=4").status, TRACESTEP_USAGE);
  EXPECT_EQ(Opened("device=tpu").status, TRACESTEP_USAGE);
  EXPECT_EQ(Opened("threads").status, TRACESTEP_USAGE);
  tracestep_close(nullptr);
  tracestep_end(nullptr);
  const Opened opened;
  ASSERT_EQ(opened.status, TRACESTEP_OK);
  tracestep_run* run = nullptr;
  EXPECT_EQ(tracestep_plan(opened.session, "/no/such/folder", TRACESTEP_STEP, &run),
            TRACESTEP_INPUT);
  EXPECT_EQ(run, nullptr);
  EXPECT_EQ(tracestep_plan(opened.session, nullptr, TRACESTEP_STEP, &run), TRACESTEP_USAGE);
  EXPECT_EQ(tracestep_plan(opened.session, fixture().c_str(), 9, &run), TRACESTEP_USAGE);
  EXPECT_EQ(tracestep_plan(nullptr, fixture().c_str(), TRACESTEP_STEP, &run), TRACESTEP_USAGE);
  run = opened.plan(TRACESTEP_STEP);
  float loss = 0;
  EXPECT_EQ(tracestep_get(run, "loss", &loss, sizeof loss), TRACESTEP_USAGE);
  EXPECT_THAT(tracestep_message(), HasSubstr("has not been started"));
  start(run);
  EXPECT_EQ(tracestep_start(run), TRACESTEP_USAGE);
  EXPECT_EQ(tracestep_get(run, "lss", &loss, sizeof loss), TRACESTEP_USAGE);
  EXPECT_EQ(tracestep_get(run, "loss", &loss, 1), TRACESTEP_USAGE);
  EXPECT_EQ(tracestep_rate(run, 1, 1e-3, 1), TRACESTEP_USAGE);
  EXPECT_EQ(tracestep_rate(run, 0, 1e-3, 0), TRACESTEP_USAGE);
}

TEST(TracestepTest, AFileWithAProgramIsOneToo) {
  const TempFolder folder;
  const std::string file = written(folder, R"(program "line" {
  input %x : f32[3,4]
  parameter %w : f32[2,4]
  %0 : f32[3,2] = matmul(%x, %w) {transpose_b=true} @ w forward
  %1 : f32[3,2] = square(%0) @ loss forward
  %2 : f32[] = sum(%1) {axes=[0,1]} @ loss forward
  output "loss" = %2
})");
  const Opened opened("device=cpu threads=1", TRACESTEP_SGD);
  tracestep_run* run = nullptr;
  ASSERT_EQ(tracestep_plan(opened.session, file.c_str(), TRACESTEP_STEP, &run), TRACESTEP_OK)
      << tracestep_message();
  start(run);
  const float weights[8] = {1, 0, 0, 0, 0, 1, 0, 0};
  ASSERT_EQ(tracestep_set(run, "w", weights, sizeof weights), TRACESTEP_OK);
  ASSERT_EQ(tracestep_rate(run, 0, 0.125, 1), TRACESTEP_OK);
  EXPECT_EQ(loss_of(run), 6.0F);
  float after[8] = {};
  ASSERT_EQ(tracestep_get(run, "w", after, sizeof after), TRACESTEP_OK);
  EXPECT_EQ(after[0], 1.0F - 0.125F * 6.0F);  // 2 x y, summed over three rows of ones
}

}  // namespace
}  // namespace tracestep
