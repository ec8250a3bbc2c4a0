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
#include "weights/model_store.h"

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
  executor.observe({.recorder = &recorder});
  executor.run();
  executor.observe({});
  executor.run();
  executor.observe({.recorder = &recorder});
  executor.run();
  executor.observe({});
  EXPECT_EQ(device.replays, 0);
  executor.run();
  EXPECT_EQ(device.replays, 1);
}

// A replay is launched by nobody's turn: each of its kernels belongs to the node that captured it.
TEST_F(CompiledCaptureTest, ATracerThatFollowsCapturesSeesTheNodesOfAReplay) {
  CapturingDevice device(cpu());
  Store store(device);
  CompiledExecutor executor(store, step_program(spec_, device));
  initialize_parameters(store, 1);
  testing::set_inputs(executor);
  std::string problem;
  const auto tracer = device.make_activity_tracer(problem);
  const auto nodes_of_a_run = [&] {
    tracer->start();
    executor.run();
    std::vector<std::int32_t> nodes;
    for (const Activity& a : tracer->stop().activities) nodes.push_back(a.node);
    return nodes;
  };
  EXPECT_EQ(executor.kernels(), std::nullopt);
  executor.run();
  EXPECT_EQ(executor.kernels(), executor.launches());
  executor.observe({.tracer = tracer.get()});
  const std::vector<std::int32_t> one_by_one = nodes_of_a_run();
  EXPECT_EQ(device.captures, 2) << "the first capture was made before the tracer came";
  EXPECT_EQ(device.replays, 0);
  EXPECT_EQ(nodes_of_a_run(), one_by_one);
  EXPECT_EQ(device.replays, 1);
  EXPECT_EQ(std::ssize(one_by_one), executor.launches());
  EXPECT_EQ(std::ranges::count(one_by_one, kWholeStep), 0);
  device.follows_captures = false;
  executor.observe({});
  executor.observe({.tracer = tracer.get()});
  for (int run = 0; run < 2; ++run) EXPECT_EQ(nodes_of_a_run(), one_by_one);
  EXPECT_EQ(device.replays, 1) << "what it cannot follow is issued one by one";
  executor.observe({});
  executor.run();
  executor.run();
  EXPECT_EQ(device.replays, 2);
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
      spec_, cpu(), cpu(),
      [](Device& device) { throw OutOfMemory(device.name(), 1 << 20, 0, {}, {}); }, "memory");
}

}  // namespace
}  // namespace tracestep
