// Tests the check for room on machines that say how much they have.
#include "session/room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/comm/local/local_group.h"
#include "backends/cpu/cpu_device.h"
#include "backends/null/null_device.h"
#include "backends/reference/reference_device.h"
#include "base/host_memory.h"
#include "exec/group_of_one.h"
#include "ops/functions.h"
#include "run/memory_limit.h"
#include "runtime/processes.h"
#include "session/devices.h"
#include "session/session.h"
#include "support/memory_root.h"
#include "support/scoped_variable.h"
#include "support/wrapped_device.h"
#include "train/step_inputs.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using testing::MemoryRoot;

constexpr std::int64_t kPlenty = std::int64_t{1} << 40;

RunSpec step() {
  return {.model = {.vocab = 20, .d_model = 16, .d_ff = 24, .layers = 1, .heads = 2},
          .shape = {.batch = 2, .context = 32},
          .mode = Mode::kStep};
}

// Available bytes of which `usable` may be used, rounded up to what /proc/meminfo can say.
std::int64_t available_for(std::int64_t usable) {
  return (usable * 10 / 9 / 1024 + 2) * 1024;
}

class RoomTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ops::register_all();
    register_device("cpu", [](const RunSpec&) { return make_cpu_device({.threads = 1}); });
    register_group([](Device&, int ranks) { return make_local_group(ranks); });
  }

  static std::int64_t peak_of(const RunSpec& run) {
    const auto device = make_null_device();
    return Session(*device, run).executor().predicted_peak_bytes();
  }
  static void start(const RunSpec& run, Device& device) { Session session(device, run); }
  // The error's message, or nothing. A device that ran before holds memory that it uses again.
  static std::string error_on(const MemoryRoot& root, const RunSpec& run) {
    const auto device = make_cpu_device({.threads = 1});
    return error_on(root, run, *device);
  }
  static std::string error_on(const MemoryRoot& root, const RunSpec& run, Device& device) {
    const ScopedVariable variable("TRACESTEP_SYSTEM_ROOT", root.path().c_str());
    const std::int64_t before = device.allocator().stats().allocation_count;
    try {
      start(run, device);
      return {};
    } catch (const DoesNotFit& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
      EXPECT_EQ(device.allocator().stats().allocation_count, before) << "something was allocated";
      return error.what();
    }
  }
};

TEST_F(RoomTest, AStepFitsIntoNineTenthsOfWhatIsFreeAndNotIntoLess) {
  for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
    RunSpec run = step();
    run.executor = executor;
    const std::int64_t peak = peak_of(run);
    EXPECT_EQ(error_on(MemoryRoot(available_for(peak)), run), "");
    const std::string error = error_on(MemoryRoot(available_for(peak) * 9 / 10), run);
    EXPECT_THAT(error, HasSubstr("[cpu] it does not fit: it needs "));
    EXPECT_THAT(error, HasSubstr("free; option memory_limit none tries anyway"));
  }
}

TEST_F(RoomTest, WhatAControlGroupHasLeftCountsToo) {
  const RunSpec run = step();
  const std::int64_t enough = available_for(peak_of(run));
  for (const int version : {2, 1}) {
    MemoryRoot root(kPlenty);
    EXPECT_EQ(error_on(root.in_group(version, enough + 5000, 5000), run), "") << version;
    EXPECT_NE(error_on(root.in_group(version, enough + 5000, enough / 2), run), "");
  }
}

TEST_F(RoomTest, ALimitInBytesMakesTheMachineNoLargerAndNoneAsksNobody) {
  RunSpec run = step();
  const MemoryRoot root(4096);
  run.place.memory_limit_bytes = kPlenty;
  EXPECT_NE(error_on(root, run), "");
  run.place.memory_limit_bytes = kAnyMemory;
  EXPECT_EQ(error_on(root, run), "");
}

TEST_F(RoomTest, WhereNobodySaysHowMuchThereIsAllIsTried) {
  const TempFolder empty;
  const ScopedVariable variable("TRACESTEP_SYSTEM_ROOT", empty.path().c_str());
  const auto device = make_cpu_device({.threads = 1});
  EXPECT_NO_THROW(start(step(), *device));
}

TEST_F(RoomTest, ADeviceThatComputesNothingNeedsNone) {
  const auto device = make_null_device();
  EXPECT_EQ(error_on(MemoryRoot(4096), step(), *device), "");
}

TEST_F(RoomTest, TheOracleIsAskedForToo) {
  RunSpec run = step();
  run.place.device = "reference";
  const auto device = make_reference_device();
  EXPECT_THAT(error_on(MemoryRoot(4096), run, *device), HasSubstr("[reference] it does not fit"));
}

// Each rank has a store of its own; two fit where three do not.
TEST_F(RoomTest, RanksThatAreThreadsAreAddedUp) {
  RunSpec run = step();
  const auto needed = [&](int ranks) {
    run.parallel.ranks = ranks;
    run.shape.batch = ranks;
    return ranks * peak_of(run);
  };
  const MemoryRoot root(available_for(needed(2)));
  const auto fits = [&](int ranks) {
    needed(ranks);
    return error_on(root, run).empty();
  };
  EXPECT_TRUE(fits(2));
  EXPECT_FALSE(fits(4));
}

TEST_F(RoomTest, WhatTheStoreHoldsIsNotCountedAgain) {
  const RunSpec run = step();
  const auto device = make_cpu_device({.threads = 1});
  const RankStores stores(*device);
  const Program program = step_program(run, *device);
  const auto first = stores.executor(run, program);
  RunSpec forward = run;
  forward.mode = Mode::kInference;
  const Program second = step_program(forward, *device);
  const Wanted more = wanted_by(forward, stores.first(), second);
  const std::int64_t alone = predicted_peak_bytes(ExecutorKind::kEager, second, device->traits());
  std::int64_t weights = 0;
  for (const ValueId id : second.leaves) {
    const Value& leaf = second.value(id);
    if (leaf.leaf == LeafKind::kParameter) weights += leaf.type.bytes();
  }
  EXPECT_GT(weights, 0);
  EXPECT_EQ(more.bytes, alone - weights);
}

// Two processes on one host, which say the same.
class TwoAlike final : public Processes {
 public:
  int rank() const override { return 0; }
  int count() const override { return 2; }
  int local_rank() const override { return 0; }
  std::vector<std::uint64_t> exchange(std::uint64_t own) override { return {own, own}; }
  void broadcast(std::span<std::byte>) override {}
  void wait_for_first() override {}
  void end_all(const std::string&, int status) override { std::_Exit(status); }
};

class GroupOfTwo final : public testing::GroupOfOne {
 public:
  Processes* processes() const override { return &processes_; }

 private:
  mutable TwoAlike processes_;
};

bool has_room_for_first(const RankStores& stores, const RunSpec& run, const Program& program,
                        std::int64_t usable) {
  const MemoryRoot root(available_for(usable));
  const ScopedVariable variable("TRACESTEP_SYSTEM_ROOT", root.path().c_str());
  try {
    stores.executor_of_first(run, program);
    return true;
  } catch (const DoesNotFit&) {
    return false;
  }
}

TEST_F(RoomTest, WhatTheFirstRankOfEachProcessWantsIsAddedUp) {
  const RunSpec run = step();
  const auto device = make_cpu_device({.threads = 1});
  std::vector<std::unique_ptr<Communicator>> group;
  group.push_back(std::make_unique<GroupOfTwo>());
  const RankDevices devices(*device, {}, std::move(group));
  const RankStores stores(devices);
  const Program program = step_program(run, *device);
  const std::int64_t alone = wanted_by(run, stores.first(), program).bytes;
  EXPECT_FALSE(has_room_for_first(stores, run, program, alone * 3 / 2));
  EXPECT_TRUE(has_room_for_first(stores, run, program, alone * 2));
}

// Memory that was given out and never written does not exist yet.
TEST_F(RoomTest, BesideTheFirstRankCountsWhatOthersHaveNotTouchedYet) {
  RunSpec run = step();
  run.model.vocab = 20000;
  run.parallel.ranks = 2;
  run.executor = ExecutorKind::kCompiled;
  const auto device = make_cpu_device({.threads = 1});
  const auto devices = make_rank_devices(*device, run);
  const RankStores stores(devices);
  const auto executor = stores.executor(run, step_program(run, *device));
  std::int64_t missing[] = {0, 0};
  for (int rank : {0, 1}) {
    Device& of_rank = stores.at(rank).device();
    missing[rank] = of_rank.allocator().stats().requested_bytes - of_rank.resident_reserved_bytes();
  }
  ASSERT_GT(missing[1], 1 << 20);
  RunSpec alone = run;
  alone.parallel = {};
  alone.mode = Mode::kInference;
  const Program program = step_program(alone, *device);
  const std::int64_t first = missing[0] + wanted_by(alone, stores.first(), program).bytes;
  EXPECT_FALSE(has_room_for_first(stores, alone, program, first + missing[1] / 2));
  EXPECT_TRUE(has_room_for_first(stores, alone, program, first + missing[1] + (1 << 20)));
}

// A model that is little else than a table: it is on the host twice beside the store.
TEST_F(RoomTest, TheLargestWeightIsCountedWhileItIsSet) {
  RunSpec run = step();
  run.mode = Mode::kInference;
  run.model.vocab = 5000;
  run.shape = {.batch = 1, .context = 1};
  const auto device = make_cpu_device({.threads = 1});
  Store store(*device);
  const Wanted wanted = wanted_by(run, store, step_program(run, *device));
  const std::int64_t table = run.model.vocab * run.model.d_model * 4;
  EXPECT_GT(wanted.bytes, 2 * table + 2 * table) << "the table, the head, and one of them twice";
  EXPECT_LT(peak_of(run), 3 * table);
}

// A CPU that passes for a GPU with memory of its own.
class OwnMemory : public testing::WrappedDevice {
 public:
  using WrappedDevice::WrappedDevice;
  const DeviceTraits& traits() const override { return traits_; }

 private:
  DeviceTraits traits_{.kind = DeviceKind::kCuda};
};

TEST(DoesNotFitTest, ALimitIsCalledOneAndIsNoFreeMemory) {
  EXPECT_THAT(DoesNotFit("cpu", 2048, 1024, true, Bound::kLimit).what(),
              HasSubstr("it needs 2.00 KiB, and the limit is 1.00 KiB"));
  EXPECT_THAT(DoesNotFit("cpu", 2048, 1024, true).what(),
              HasSubstr("it needs 2.00 KiB, and this machine has 1.00 KiB free"));
}

TEST_F(RoomTest, ADeviceWithItsOwnMemoryIsAskedForThatAndTheHostForTheRest) {
  register_free_bytes([](Device&) { return std::optional<std::int64_t>(1000); });
  OwnMemory device(make_cpu_device({.threads = 1}));
  const auto error = [&](std::int64_t bytes, std::int64_t host_bytes, std::int64_t on_host) {
    const MemoryRoot root(on_host);
    const ScopedVariable variable("TRACESTEP_SYSTEM_ROOT", root.path().c_str());
    const Wanted wanted{&device, bytes, host_bytes};
    try {
      check_room({}, std::span(&wanted, 1));
      return std::string();
    } catch (const DoesNotFit& e) {
      return std::string(e.what());
    }
  };
  EXPECT_EQ(error(1000, 5000, 1 << 20), "");
  EXPECT_THAT(error(1001, 0, 1 << 20), HasSubstr("[cpu] it does not fit: it needs 1001 B"));
  EXPECT_THAT(error(0, 5000, 4096), HasSubstr("[cpu, host memory] it does not fit"));
  register_free_bytes({});
  EXPECT_EQ(error(1001, 0, 1 << 20), "") << "nobody says what it has";
}

}  // namespace
}  // namespace tracestep
