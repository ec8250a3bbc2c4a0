// The device's own profiler: kernels under their nodes, on the host's clock, and only while it
// records.
#ifdef TRACESTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "backends/cuda/cuda_device.h"
#include "exec/compiled.h"
#include "exec/eager.h"
#include "ops/functions.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

class CudaTracerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (probe_cuda().devices == 0) GTEST_SKIP() << "there is no GPU";
    ops::register_all();
    device_ = make_cuda_device();
    std::string problem;
    tracer_ = device_->make_activity_tracer(problem);
    if (tracer_ == nullptr) GTEST_SKIP() << problem;
    store_ = std::make_unique<Store>(*device_);
    executor_ = std::make_unique<EagerExecutor>(*store_, program());
    executor_->observe({.tracer = tracer_.get()});
  }
  void TearDown() override {
    if (executor_ != nullptr) executor_->observe({});
  }

  // A product and a sum; the weights are zeros.
  Program program() const {
    Builder b("traced");
    const Val x = b.parameter("x", {DType::kF32, {64, 64}});
    const Val y = ops::matmul(x, x);
    b.output("z", ops::add(y, y));
    return program_for(b.finish(), {.mode = Mode::kInference}, *device_);
  }
  void run() {
    executor_->run();
    device_->synchronize();
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<ActivityTracer> tracer_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<EagerExecutor> executor_;
};

TEST_F(CudaTracerTest, KernelsBelongToTheirNodesAndCallsToTheirKernels) {
  tracer_->start();
  const std::int64_t before = now_ns();
  run();
  const std::int64_t after = now_ns();
  const ActivityTrace trace = tracer_->stop();
  EXPECT_EQ(trace.dropped, 0);
  std::set<std::int32_t> nodes;
  for (const Activity& a : trace.activities) {
    nodes.insert(a.node);
    EXPECT_LT(a.start_ns, a.end_ns);
    EXPECT_GE(a.start_ns, before);
    EXPECT_LE(a.end_ns, after);
    EXPECT_GT(a.block[0], 0);
    const auto call = std::ranges::find(trace.calls, a.correlation, &ApiCall::correlation);
    ASSERT_NE(call, trace.calls.end());
    EXPECT_LE(call->start_ns, a.start_ns);
  }
  EXPECT_EQ(nodes, (std::set<std::int32_t>{0, 1}));
}

// A replay launches all kernels by one call: their nodes are known by the graph's.
TEST_F(CudaTracerTest, KernelsOfAReplayBelongToTheirNodes) {
  executor_->observe({});
  CompiledExecutor replayed(*store_, program());
  replayed.run();
  ASSERT_TRUE(replayed.is_captured());
  ASSERT_TRUE(tracer_->follows_captures());
  replayed.observe({.tracer = tracer_.get()});
  replayed.run();
  ASSERT_TRUE(replayed.is_captured());
  for (int run = 0; run < 2; ++run) {
    tracer_->start();
    replayed.run();
    device_->synchronize();
    const ActivityTrace trace = tracer_->stop();
    EXPECT_EQ(std::ssize(trace.activities), replayed.kernels());
    std::set<std::int32_t> nodes;
    std::set<std::uint32_t> calls;
    for (const Activity& a : trace.activities) {
      EXPECT_NE(a.graph_node, 0u);
      nodes.insert(a.node);
      calls.insert(a.correlation);
    }
    EXPECT_EQ(nodes, (std::set<std::int32_t>{0, 1}));
    EXPECT_EQ(calls.size(), 1u);
  }
}

TEST_F(CudaTracerTest, NothingIsKeptFromBeforeTheStart) {
  run();
  tracer_->start();
  EXPECT_TRUE(tracer_->stop().activities.empty());
  tracer_->start();
  run();
  const std::size_t once = tracer_->stop().activities.size();
  tracer_->start();
  run();
  run();
  EXPECT_EQ(tracer_->stop().activities.size(), 2 * once);
}

TEST_F(CudaTracerTest, OneTracerRecordsAtATimeAndTheNextMayFollow) {
  std::string problem;
  EXPECT_EQ(device_->make_activity_tracer(problem), nullptr);
  EXPECT_FALSE(problem.empty());
  executor_->observe({});
  tracer_.reset();
  tracer_ = device_->make_activity_tracer(problem);
  EXPECT_NE(tracer_, nullptr) << problem;
}

}  // namespace
}  // namespace tracestep
#endif
