#include "lab/pytorch/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "lab/pytorch/tables.h"
#include "lab/pytorch/ways.h"
#include "support/tables.h"

namespace tracestep {
namespace {

using testing::cell;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Names: 1 a line, 2 and 3 parts of the model, 4 log-softmax.
AllocationList list_of(const std::string& events, const std::string& steps = "[0]") {
  return recorded_step_from(
      R"({"format":1,"torch":"2.11.0","phases":[],"names":["","model.py:84 forward","layers.0","layers.1","_log_softmax"],"steps":)" +
          steps + R"(,"events":[)" + events + "]}",
      "list");
}

// A weight of 40 MiB; forward of two parts keeps 30 + 30 MiB and passes 10 on; backward frees.
const char* const kStep =
    "[1,41943040,1,0,0,0],[2,31457280,1,2,0,1],[3,10485760,1,2,0,1],[4,31457280,1,3,0,1],"
    "[5,10485760,1,3,0,1],[6,10485760,1,3,0,2],[-4],[-5],[7,10485760,1,2,0,2],[-6],[-2],[-3],"
    "[8,41943040,1,0,0,4],[-8],[-7]";

TEST(PytorchReplay, FindsPeakAndHolders) {
  const PytorchReplay r = replay(list_of(kStep), {}, {});
  EXPECT_EQ(r.statistics.most_allocated_bytes, 130 * kMiB);
  EXPECT_EQ(r.peak_event, 5u);
  ASSERT_FALSE(r.holders.empty());
  EXPECT_EQ(r.holders.front().bytes, 40 * kMiB);
  EXPECT_FALSE(r.out_of_memory);
}

TEST(PytorchReplay, SaysWhereMemoryRunsOut) {
  const PytorchCard card{.usable_bytes = 118 * kMiB, .outside_bytes = 10 * kMiB};
  const PytorchReplay r = replay(list_of(kStep), {}, card);
  ASSERT_TRUE(r.out_of_memory);
  EXPECT_EQ(r.out_of_memory->event, 3u);
  EXPECT_EQ(r.out_of_memory->asked_bytes, 30 * kMiB);
  EXPECT_EQ(r.out_of_memory->step, 1);
}

TEST(PytorchReplay, FindsTheLeastCardOnWhichItRuns) {
  const AllocationList list = list_of(kStep);
  const std::int64_t least = least_reserved_bytes(list, {}, {});
  PytorchCard card{.usable_bytes = least, .outside_bytes = 0};
  EXPECT_FALSE(replay(list, {}, card).out_of_memory);
  card.usable_bytes -= 4 * kMiB;
  EXPECT_TRUE(replay(list, {}, card).out_of_memory);
}

TEST(PytorchWays, ComputeNumberedPartsAgain) {
  const AllocationList changed = with_checkpoints(list_of(kStep));
  // The first part keeps nothing while the second one runs.
  EXPECT_LT(replay(changed, {}, {}).statistics.most_allocated_bytes, 130 * kMiB);
  const CachingAllocator::Statistics end = replay(changed, {}, {}).statistics;
  EXPECT_EQ(end.allocated_bytes, replay(list_of(kStep), {}, {}).statistics.allocated_bytes);
}

TEST(PytorchWays, TakeAFusedOptimizersTemporariesAway) {
  const AllocationList changed = with_fused_optimizer(list_of(kStep));
  EXPECT_EQ(changed.blocks, 7u);
  // A state that the update leaves behind stays.
  EXPECT_EQ(with_fused_optimizer(list_of("[1,512,1,0,0,4],[2,512,1,0,0,1]")).blocks, 2u);
}

TEST(PytorchWays, LetGradientsGo) {
  // 40 MiB of a gradient live through the second forward, of 30; what is added then is another 40.
  const std::string first = "[1,31457280,1,2,0,1],[2,41943040,1,2,4,2],[-1],";
  const std::string second = "[3,31457280,1,2,0,1],[4,41943040,1,2,4,2],[-4],[-3]";
  const AllocationList kept = list_of(first + second, "[0,3]");
  const AllocationList gone = list_of(first + "[-2]," + second, "[0,3]");
  EXPECT_EQ(replay(kept, {}, {}).statistics.most_allocated_bytes, 110 * kMiB);
  EXPECT_EQ(replay(with_gradients_let_go(kept), {}, {}).statistics.most_allocated_bytes, 70 * kMiB);
  EXPECT_EQ(replay(with_gradients_let_go(kept), {}, {}).statistics.allocated_bytes, 40 * kMiB);
  EXPECT_EQ(with_gradients_let_go(gone).events.size(), gone.events.size());
}

TEST(PytorchWays, DivideTheLoss) {
  const AllocationList list =
      list_of("[1,8388608,1,0,4,1],[2,4194304,1,0,0,1],[3,8388608,1,0,0,0]");
  EXPECT_EQ(replay(with_loss_in_chunks(list), {}, {}).statistics.allocated_bytes,
            kMiB + kMiB / 2 + 8 * kMiB);
}

TEST(PytorchTables, AnswerFromTheSameRows) {
  const PytorchQuestion q{.list = list_of(kStep),
                          .settings = {},
                          .settings_text = "",
                          .card = {.usable_bytes = 118 * kMiB, .outside_bytes = 10 * kMiB},
                          .ours_bytes = kMiB};
  const Table answer = pytorch_table(q), ways = pytorch_ways_table(q);
  EXPECT_EQ(cell(answer, std::size_t{0}, "where").as_string(), "model.py:84 forward of layers.1");
  EXPECT_EQ(cell(answer, std::size_t{0}, "needed_bytes"),
            cell(ways, std::size_t{0}, "needed_bytes"));
  EXPECT_EQ(cell(answer, std::size_t{0}, "missing_bytes"),
            cell(ways, std::size_t{0}, "missing_bytes"));
  EXPECT_EQ(broken_rule(pytorch_snapshot(q)), "");
}

TEST(RecordedStep, RefusesWhatNoStepHas) {
  for (const char* wrong :
       {"[1,0,0,0,0,0]", "[1,-2,0,0,0,0]", "[1,512,9,0,0,0]", "[1,512,0,0,0,5]", "[1,512,0,0,0]",
        "[-1]", "[1,512,0,0,0,0],[1,512,0,0,0,0]", "[1,512,0,0,0,0],[-1],[-1]", "[\"x\"]", "[1.5]",
        "[1,99999999999999999,0,0,0,0]", "[-9223372036854775808]", "7"}) {
    EXPECT_THROW(list_of(wrong), Error) << wrong;
  }
  EXPECT_THROW(list_of("", "[1]"), Error);
  EXPECT_THROW(list_of("[1,512,0,0,0,0]", "[1,0]"), Error);
  EXPECT_THROW(recorded_step_from("{}", "f"), Error);
  EXPECT_THROW(recorded_step_from(R"({"format":2})", "f"), Error);
  EXPECT_THROW(recorded_step_from("[[[[", "f"), Error);
}

}  // namespace
}  // namespace tracestep
