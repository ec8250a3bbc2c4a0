// Executors and groups: results that are sent early wait for the end of their batch, and a step is
// captured by all ranks or by none.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "exec/compiled.h"
#include "exec/eager.h"
#include "exec/group_of_one.h"
#include "ir/parse.h"
#include "ops/functions.h"
#include "runtime/processes.h"
#include "support/backends.h"
#include "support/capturing_device.h"
#include "support/host_values.h"
#include "support/wrapped_device.h"

namespace tracestep {
namespace {

std::unique_ptr<Device> cpu() {
  return testing::backend_named("cpu").make({.threads = 1});
}

// Makes the calls of a batch at its end, as NCCL does.
class BatchingGroup final : public testing::GroupOfOne {
 public:
  void all_reduce(const TensorRef& x, const TensorRef& y) override {
    calls_.emplace_back([x, y] { copy(x, y); });
  }
  void begin_batch() override { EXPECT_TRUE(calls_.empty()); }
  void end_batch() override {
    for (const auto& call : std::exchange(calls_, {})) call();
  }

 private:
  std::vector<std::function<void()>> calls_;
};

// Sends what is in memory at that moment.
class SendingDevice final : public testing::WrappedDevice {
 public:
  using WrappedDevice::WrappedDevice;
  std::unique_ptr<Outbox> make_outbox(std::span<const std::size_t> bytes) override {
    return std::make_unique<Letters>(bytes);
  }

 private:
  class Letters final : public Outbox {
   public:
    explicit Letters(std::span<const std::size_t> bytes) {
      for (std::size_t size : bytes) values_.emplace_back(size);
    }
    void send(std::span<const void* const> from) override {
      for (std::size_t i = 0; i < from.size(); ++i) {
        std::memcpy(values_[i].data(), from[i], values_[i].size());
      }
    }
    void count_replay() override {}
    std::span<const std::byte> read(std::size_t i) override { return values_[i]; }

   private:
    std::vector<std::vector<std::byte>> values_;
  };
};

class GroupsTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
};

TEST_F(GroupsTest, AResultIsSentWhenItsBatchHasEnded) {
  const Program program = parse_program(R"(program "batch" {
  input %x : f32[]
  %0 : f32[] = add(%x, %x) @ a forward
  %1 : f32[] = all_reduce(%0) {ranks=1, batch=1} @ a communication
  %2 : f32[] = all_reduce(%x) {ranks=1, batch=1} @ a communication
  output "loss" = %1
  output "other" = %2
  output "own" = %0
}
)");
  BatchingGroup group;
  std::unique_ptr<Device> inner = cpu();
  inner->join(&group);  // prepares the calls
  SendingDevice device(std::move(inner));
  device.join(&group);  // issues them
  Store store(device);
  EagerExecutor executor(store, program);
  executor.observe({.early = {"loss"}});
  for (double x : {1.0, 2.0}) {
    executor.set_input("x", testing::from_doubles(DType::kF32, {}, std::vector{x}));
    executor.run();
    EXPECT_EQ(executor.scalar("loss"), 2 * x);
  }
}

// Two processes, of which the other one says always the same.
class OtherProcess final : public Processes {
 public:
  explicit OtherProcess(bool value) : value_(value) {}
  int rank() const override { return 0; }
  int count() const override { return 2; }
  int local_rank() const override { return 0; }
  std::vector<std::uint64_t> exchange(std::uint64_t own) override {
    return {own, value_ ? 1u : 0u};
  }
  void broadcast(std::span<std::byte>) override {}
  void wait_for_first() override {}
  void end_all(const std::string&, int status) override { std::_Exit(status); }

 private:
  const bool value_;
};

class GroupOfProcesses final : public testing::GroupOfOne {
 public:
  explicit GroupOfProcesses(Processes& processes) : processes_(processes) {}
  Processes* processes() const override { return &processes_; }

 private:
  Processes& processes_;
};

TEST_F(GroupsTest, AStepIsCapturedByAllRanksOrByNone) {
  const Program program = parse_program(R"(program "step" {
  input %x : f32[]
  %0 : f32[] = add(%x, %x) @ a forward
  output "y" = %0
}
)");
  for (const bool other_lacks_it : {false, true}) {
    OtherProcess other(other_lacks_it);
    GroupOfProcesses group(other);
    testing::CapturingDevice device(cpu());
    device.join(&group);
    Store store(device);
    CompiledExecutor executor(store, program);
    executor.set_input("x", testing::from_doubles(DType::kF32, {}, std::vector{3.0}));
    for (int run = 0; run < 3; ++run) executor.run();
    EXPECT_EQ(executor.is_captured(), !other_lacks_it);
    EXPECT_EQ(device.replays, other_lacks_it ? 0 : 2);
    EXPECT_EQ(executor.scalar("y"), 6.0);
  }
}

}  // namespace
}  // namespace tracestep
