// Plans: what lives at the same time never shares a byte, and the arena is hardly larger than what
// lives at once.
#include "analysis/plan.h"

#include <gtest/gtest.h>

#include "analysis/cost.h"
#include "analysis/memory_map.h"
#include "base/random.h"
#include "ir/parse.h"
#include "ops/functions.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

constexpr DeviceTraits kDevices[] = {{DeviceKind::kCuda, 1}, {DeviceKind::kCpu, 3}};

bool share_bytes(std::int64_t offset, std::int64_t bytes, std::int64_t other_offset,
                 std::int64_t other_bytes) {
  return offset < other_offset + other_bytes && other_offset < offset + bytes;
}

// Programs of every mode, granularity and attention, for a small model.
std::vector<Program> small_steps() {
  std::vector<Program> out;
  for (Mode mode : kAll<Mode>) {
    for (Granularity ops : {Granularity::kPrimitive, Granularity::kFused}) {
      for (AttentionForm attention : {AttentionForm::kNaive, AttentionForm::kFlash}) {
        RunSpec spec;
        spec.model = {.vocab = 301, .d_model = 48, .d_ff = 80, .layers = 2, .heads = 2};
        spec.shape = {.batch = 2, .context = 37};
        spec.mode = mode;
        spec.ops = ops;
        spec.attention = attention;
        out.push_back(step_program(spec));
      }
    }
  }
  return out;
}

class PlanTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
};

TEST_F(PlanTest, NoTwoThatOverlapInTimeShareAByte) {
  for (const Program& program : small_steps()) {
    for (const DeviceTraits& traits : kDevices) {
      const Plan plan = plan_step(program, traits);
      std::int64_t pairs = 0;
      for (std::size_t i = 0; i < plan.places.size(); ++i) {
        const Plan::Place& a = plan.places[i];
        EXPECT_EQ(a.offset % kArenaAlignment, 0);
        EXPECT_GE(a.offset, 0);
        EXPECT_LE(a.offset + a.bytes, plan.arena_bytes);
        for (std::size_t j = 0; j < i; ++j) {
          const Plan::Place& b = plan.places[j];
          if (!plan.overlap_in_time(a, b)) continue;
          ++pairs;
          ASSERT_FALSE(share_bytes(a.offset, a.bytes, b.offset, b.bytes))
              << program.name << ": places " << i << " and " << j;
        }
      }
      EXPECT_GT(pairs, 0);
    }
  }
}

TEST_F(PlanTest, EveryBufferAndEveryWorkspaceHasItsPlace) {
  for (const Program& program : small_steps()) {
    for (const DeviceTraits& traits : kDevices) {
      const Plan plan = plan_step(program, traits);
      for (std::size_t b = 0; b < plan.buffer_plan.buffers.size(); ++b) {
        const Buffer& buffer = plan.buffer_plan.buffers[b];
        const int place = plan.place_of_buffer[b];
        ASSERT_EQ(place >= 0, buffer.first != kNoNode && buffer.bytes > 0);
        if (place < 0) continue;
        EXPECT_EQ(plan.places[static_cast<std::size_t>(place)].bytes, buffer.bytes);
      }
      for (std::size_t i = 0; i < program.nodes.size(); ++i) {
        const std::int64_t bytes =
            plan.buffer_plan.runs[i] ? workspace_bytes(program, program.nodes[i], traits) : 0;
        const int place = plan.workspace_of[i];
        ASSERT_EQ(place >= 0, bytes > 0);
        if (place < 0) continue;
        EXPECT_EQ(plan.places[static_cast<std::size_t>(place)].bytes, bytes);
      }
    }
  }
}

TEST_F(PlanTest, TheBoundIsThePeakOfAnAllocatorButForRounding) {
  for (const Program& program : small_steps()) {
    for (const DeviceTraits& traits : kDevices) {
      const Plan plan = plan_step(program, traits);
      const std::int64_t peak = predicted_peak_bytes(program, plan.buffer_plan, traits);
      const auto rounding = static_cast<std::int64_t>(plan.places.size()) * kArenaAlignment;
      EXPECT_GE(plan.leaf_bytes + plan.least_arena_bytes, peak);
      EXPECT_LE(plan.leaf_bytes + plan.least_arena_bytes, peak + rounding);
      EXPECT_GE(plan.arena_bytes, plan.least_arena_bytes);
    }
  }
}

// The hardest of all presets, modes, granularities and forms of attention, and some others.
TEST_F(PlanTest, TheArenaOfAPresetIsWithinTwoPercentOfTheBound) {
  struct Case {
    const char* model;
    Mode mode;
    Granularity ops;
    AttentionForm attention;
    const char* precision;
  };
  constexpr Case kCases[] = {
      {"2.7B", Mode::kStep, Granularity::kFused, AttentionForm::kFlash, "fp32"},
      {"2.7B", Mode::kForwardBackward, Granularity::kFused, AttentionForm::kFlash, "bf16"},
      {"small", Mode::kStep, Granularity::kPrimitive, AttentionForm::kNaive, "bf16"},
      {"medium", Mode::kForward, Granularity::kFused, AttentionForm::kNaive, "fp32"},
      {"xl", Mode::kInference, Granularity::kFused, AttentionForm::kFlash, "bf16"}};
  for (const Case& c : kCases) {
    RunSpec spec;
    spec.model = preset(c.model);
    spec.precision = parse_precision("test", c.precision);
    spec.shape = {.batch = 4, .context = 512};
    spec.mode = c.mode;
    spec.ops = c.ops;
    spec.attention = c.attention;
    const Program program = step_program(spec);
    for (const DeviceTraits& traits : kDevices) {
      const Plan plan = plan_step(program, traits);
      EXPECT_LE(static_cast<double>(plan.arena_bytes),
                1.02 * static_cast<double>(plan.least_arena_bytes))
          << c.model << " " << name_of(c.mode) << " on " << name_of(traits.kind);
    }
  }
}

TEST_F(PlanTest, ABufferIsAliveFromItsNodeToItsLastReader) {
  const Plan plan = plan_step(parse_program(R"(program "p" {
    input %x : f32[4]
    %0 : f32[4] = exp(%x)
    %1 : f32[2] = slice(%0) {axis=0, start=0, stop=2}
    %2 : f32[2] = neg(%1)
    output "y" = %2
  })"),
                              {});
  const int leaf = plan.buffer_plan.buffer_of[0], exp = plan.buffer_plan.buffer_of[1];
  const int y = plan.buffer_plan.buffer_of[3];
  for (NodeId done : {-1, 0, 1, 2}) {
    EXPECT_TRUE(plan.is_alive_after(leaf, done));
    EXPECT_EQ(plan.is_alive_after(exp, done), done == 0 || done == 1) << done;
    EXPECT_EQ(plan.is_alive_after(y, done), done == 2) << done;
  }
}

TEST(ArenaTest, RandomBlocksNeverShareBytesWhileTheyLive) {
  const CounterRng rng(0, "arena");
  std::uint64_t drawn = 0;
  const auto below = [&](int bound) { return static_cast<int>(rng.uniform(drawn++) * bound); };
  for (int round = 0; round < 200; ++round) {
    std::vector<ArenaBlock> blocks;
    for (int i = below(60); i >= 0; --i) {
      const int first = below(40);
      blocks.push_back({1 + below(5000), {first, first + below(40)}});
    }
    const std::int64_t bytes = pack_arena(blocks);
    EXPECT_GE(bytes, least_arena_bytes(blocks));
    for (const ArenaBlock& a : blocks) {
      EXPECT_LE(a.offset + a.bytes, bytes);
      for (const ArenaBlock& b : blocks) {
        if (&a == &b || !a.life.overlaps(b.life)) continue;
        ASSERT_FALSE(share_bytes(a.offset, a.bytes, b.offset, b.bytes)) << "round " << round;
      }
    }
  }
}

TEST(ArenaTest, NothingTakesNoBytes) {
  std::vector<ArenaBlock> none;
  EXPECT_EQ(least_arena_bytes(none), 0);
  EXPECT_EQ(pack_arena(none), 0);
}

TEST(ArenaTest, WhatDoesNotOverlapLiesInTheSamePlace) {
  std::vector<ArenaBlock> blocks{{1000, {0, 3}}, {900, {4, 9}}, {300, {2, 5}}};
  EXPECT_EQ(pack_arena(blocks), 1024 + 512);
}

}  // namespace
}  // namespace tracestep
