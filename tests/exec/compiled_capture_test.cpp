// The compiled executor on a device that captures: what is replayed, and what happens when the
// capture breaks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/cost.h"
#include "exec/compiled.h"
#include "exec/small_steps.h"
#include "ops/functions.h"
#include "support/backends.h"
#include "support/capturing_device.h"
#include "train/model_store.h"

namespace tracestep {
namespace {

using testing::CapturingDevice;
using testing::results_of;
using testing::small_step;

class CompiledCaptureTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
  static std::unique_ptr<Device> cpu() { return testing::backend_named("cpu").make({}); }

  const RunSpec spec_ = small_step(Mode::kStep, Granularity::kFused);
};

TEST_F(CompiledCaptureTest, TheFirstRunIsCapturedAndTheOthersReplayIt) {
  const auto plain = cpu();
  CapturingDevice capturing(cpu());
  EXPECT_EQ(results_of(ExecutorKind::kCompiled, spec_, capturing),
            results_of(ExecutorKind::kEager, spec_, *plain));
  EXPECT_EQ(capturing.replays, 2);
  EXPECT_EQ(capturing.launches, launch_count(step_program(spec_, capturing)));
}

TEST_F(CompiledCaptureTest, WhoeverListensToLaunchesGetsThemOneByOne) {
  CapturingDevice device(cpu());
  Store store(device);
  CompiledExecutor executor(
      store, step_program(small_step(Mode::kForwardBackward, Granularity::kFused), device));
  initialize_parameters(store, 1);
  testing::set_inputs(executor);
  Recorder recorder({.spans = true});
  executor.run(&recorder);
  executor.run();
  executor.run(&recorder);
  EXPECT_EQ(device.replays, 0);
  executor.run();
  EXPECT_EQ(device.replays, 1);
}

// Runs with a fault in the middle of the capture: the results are those of the eager executor, and
// one warning says why.
void expect_it_goes_on(const RunSpec& spec, std::unique_ptr<Device> device,
                       std::unique_ptr<Device> plain, std::function<void(Device&)> fault,
                       const std::string& words) {
  CapturingDevice broken(std::move(device));
  broken.launches_before_fault = 30;
  broken.fault = [&] { fault(broken); };
  ::testing::internal::CaptureStderr();
  const auto results = results_of(ExecutorKind::kCompiled, spec, broken);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(results, results_of(ExecutorKind::kEager, spec, *plain));
  EXPECT_EQ(broken.captures, 1);
  EXPECT_EQ(broken.replays, 0);
  EXPECT_EQ(broken.launches, 3 * launch_count(step_program(spec, broken)));
  EXPECT_THAT(log, ::testing::HasSubstr("cannot be captured and are issued one by one"));
  EXPECT_THAT(log, ::testing::HasSubstr(words));
  EXPECT_EQ(broken.allocator().stats().requested_bytes, 0);
}

TEST_F(CompiledCaptureTest, ACaptureThatFailsHalfWayIsGivenUp) {
  expect_it_goes_on(
      spec_, cpu(), cpu(),
      [](Device& device) { throw DeviceError(device.name(), "capture", "not permitted"); },
      "not permitted");
}

TEST_F(CompiledCaptureTest, MemoryThatRunsOutInACaptureIsNoReasonToStop) {
  expect_it_goes_on(
      spec_, cpu(), cpu(), [](Device& device) { throw OutOfMemory(device.name(), 1 << 20, 0, {}); },
      "memory");
}

}  // namespace
}  // namespace tracestep
