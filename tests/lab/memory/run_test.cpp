// A recorded step against its prediction, buffer by buffer; and that a stray block is found.
#include "lab/memory/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/cost.h"
#include "backends/null/null_device.h"
#include "ops/functions.h"
#include "support/backends.h"

namespace tracestep {
namespace {

MemoryRunSpec tiny_run(Mode mode, Granularity ops, std::string_view precision = "fp32") {
  MemoryRunSpec out;
  out.step.model = {.vocab = 50, .d_model = 32, .d_ff = 48, .layers = 2, .heads = 2};
  out.step.precision = parse_precision("test", precision);
  out.step.shape = {.batch = 2, .context = 16};
  out.step.mode = mode;
  out.step.ops = ops;
  return out;
}

// Asks for one block more than it is told to, once, in the middle of the step that follows the
// warm-up, and never gives it back.
class LeakyAllocator final : public Allocator {
 public:
  LeakyAllocator(Allocator& to, int leak_at) : to_(to), left_(leak_at) {}
  void* allocate(std::int64_t bytes, const AllocationTag& tag) override {
    if (tag.node >= 0 && --left_ == 0) leak_ = to_.allocate(640, tag);
    return to_.allocate(bytes, tag);
  }
  void free(void* address) override { to_.free(address); }
  const AllocatorStats& stats() const override { return to_.stats(); }
  void reset_peak() override { to_.reset_peak(); }
  void trim() override { to_.trim(); }
  void set_limit(std::int64_t bytes) override { to_.set_limit(bytes); }
  std::int64_t limit() const override { return to_.limit(); }
  void set_recorder(Recorder* recorder) override { to_.set_recorder(recorder); }
  Recorder* recorder() const override { return to_.recorder(); }
  std::int64_t block_alignment() const override { return to_.block_alignment(); }
  std::vector<LiveAllocation> live() const override { return to_.live(); }

 private:
  Allocator& to_;
  int left_;
  void* leak_ = nullptr;
};

class LeakyDevice final : public Device {
 public:
  explicit LeakyDevice(int leak_at) : allocator_(device_->allocator(), leak_at) {}
  const std::string& name() const override { return device_->name(); }
  const DeviceTraits& traits() const override { return device_->traits(); }
  Allocator& allocator() override { return allocator_; }
  bool has_kernel(const OpDef& op) const override { return device_->has_kernel(op); }
  std::unique_ptr<PreparedKernel> prepare(KernelSpec spec) override {
    return device_->prepare(std::move(spec));
  }
  bool supports(DType dtype) const override { return device_->supports(dtype); }
  bool computes() const override { return device_->computes(); }
  void copy_in(void* to, const void* from, std::int64_t n) override {
    device_->copy_in(to, from, n);
  }
  void copy_out(void* to, const void* from, std::int64_t n) override {
    device_->copy_out(to, from, n);
  }
  void zero(void* device, std::int64_t bytes) override { device_->zero(device, bytes); }

 private:
  std::unique_ptr<Device> device_ = make_null_device();
  LeakyAllocator allocator_;
};

class MemoryRunTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ops::register_all(); }
  static DeviceFactory device(std::int64_t limit = 0) {
    return [name = GetParam(), limit](const RunSpec&) {
      return testing::backend_named(name).make({.memory_limit = limit});
    };
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, MemoryRunTest, ::testing::ValuesIn(testing::backend_names()));

TEST_P(MemoryRunTest, EveryBlockIsABufferThatWasPredictedAndTheOtherWayRound) {
  for (Mode mode : kAll<Mode>) {
    for (Granularity ops : {Granularity::kPrimitive, Granularity::kFused}) {
      for (const char* precision : {"fp32", "bf16"}) {
        MemoryRunSpec spec = tiny_run(mode, ops, precision);
        spec.times = false;
        const MemoryRun run = run_memory(device(), spec);
        EXPECT_EQ(run.status, Status::kOk);
        EXPECT_THAT(surprises(run), ::testing::IsEmpty()) << name_of(mode) << precision;
        EXPECT_EQ(run.peak_bytes, run.map.peak_bytes);
      }
    }
  }
}

TEST_P(MemoryRunTest, EveryMomentOfTheStepIsAsFullAsPredicted) {
  const MemoryRun run = run_memory(device(), tiny_run(Mode::kStep, Granularity::kPrimitive));
  std::int64_t peak = 0;
  for (const Moment& m : run.moments) {
    ASSERT_EQ(m.measured_bytes, m.predicted_bytes) << "node " << m.node;
    peak = std::max(peak, m.measured_bytes);
  }
  EXPECT_EQ(peak, run.peak_bytes);
  EXPECT_EQ(static_cast<std::int64_t>(run.moments.size()), launch_count(run.program));
}

TEST_P(MemoryRunTest, AnArenaHoldsTheBlocksThatWerePredicted) {
  for (Mode mode : kAll<Mode>) {
    MemoryRunSpec spec = tiny_run(mode, Granularity::kFused);
    spec.step.executor = ExecutorKind::kCompiled;
    const MemoryRun run = run_memory(device(), spec);
    EXPECT_EQ(run.status, Status::kOk);
    EXPECT_THAT(surprises(run), ::testing::IsEmpty()) << name_of(mode);
    for (const Moment& m : run.moments) {
      ASSERT_EQ(m.measured_bytes, m.predicted_bytes) << "node " << m.node;
    }
    ASSERT_TRUE(run.plan.has_value());
    EXPECT_EQ(run.predicted_peak_bytes, run.map.leaf_bytes + run.plan->arena_bytes);
    EXPECT_EQ(run.peak_bytes, run.predicted_peak_bytes);
    EXPECT_EQ(run_memory(device(run.peak_bytes), spec).status, Status::kOk);
    const MemoryRun smaller = run_memory(device(run.peak_bytes - 1), spec);
    ASSERT_EQ(smaller.status, Status::kOutOfMemory);
    EXPECT_EQ(smaller.oom->node, kNoNode) << "before the first node";
    EXPECT_TRUE(smaller.moments.empty());
  }
}

TEST_P(MemoryRunTest, KernelsAreTimedApartFromTheRecordedStep) {
  MemoryRunSpec spec = tiny_run(Mode::kStep, Granularity::kFused);
  spec.protocol.steps = 2;
  const MemoryRun run = run_memory(device(), spec);
  std::int64_t total = 0;
  for (std::int64_t ns : run.node_ns) total += ns;
  EXPECT_GT(total, 0);
  EXPECT_GT(run.event_ns, 0.0);
  EXPECT_GT(run.recorded_step_ms, 0.0);
}

TEST_P(MemoryRunTest, OneByteLessThanThePeakIsOutOfMemoryInTheNodeOfThePeak) {
  const MemoryRunSpec spec = tiny_run(Mode::kForwardBackward, Granularity::kFused);
  const MemoryRun free = run_memory(device(), spec);
  EXPECT_EQ(run_memory(device(free.map.peak_bytes), spec).status, Status::kOk);
  const MemoryRun run = run_memory(device(free.map.peak_bytes - 1), spec);
  ASSERT_EQ(run.status, Status::kOutOfMemory);
  EXPECT_EQ(run.oom->node, free.map.peak_node);
  EXPECT_EQ(run.events.back().action, MemoryAction::kOom);
  std::int64_t live = 0;
  for (const LiveAllocation& block : run.oom->live) live += block.requested_bytes;
  EXPECT_EQ(live + run.oom->requested_bytes > free.map.peak_bytes - 1, true);
  std::int64_t held = 0;  // the holdings that nobody freed are the live set
  for (const Holding& h : run.holdings) {
    EXPECT_GE(h.buffer, 0);
    if (!h.free) held += h.requested_bytes;
  }
  EXPECT_EQ(held, live);
}

TEST_P(MemoryRunTest, WeightsThatDoNotFitFailBeforeTheFirstNode) {
  const MemoryRun run = run_memory(device(4000), tiny_run(Mode::kInference, Granularity::kFused));
  ASSERT_EQ(run.status, Status::kOutOfMemory);
  EXPECT_EQ(run.oom->node, kNoNode);
  EXPECT_TRUE(run.moments.empty());
}

DeviceFactory null_gpu(std::int64_t host_limit = 0) {
  return [host_limit](const RunSpec&) {
    auto device = make_null_device({.traits = {.kind = DeviceKind::kCuda}});
    device->host_allocator().set_limit(host_limit);
    return device;
  };
}

TEST(MemoryRunOffloadTest, StatesInHostMemoryAreCountedApart) {
  ops::register_all();
  MemoryRunSpec spec = tiny_run(Mode::kStep, Granularity::kFused);
  spec.step.offload = Offload::kOptimizer;
  const MemoryRun run = run_memory(null_gpu(), spec);
  EXPECT_THAT(surprises(run), ::testing::IsEmpty());
  EXPECT_EQ(run.peak_bytes, run.map.peak_bytes);
  EXPECT_EQ(run.host_bytes, host_bytes(run.program));
  EXPECT_EQ(run.host_bytes, 8 * run.parameters);
  EXPECT_EQ(run.map.by_category[static_cast<std::size_t>(Category::kOptimizerState)], 0);
  const MemoryRun full = run_memory(null_gpu(run.host_bytes - 1), spec);
  ASSERT_EQ(full.status, Status::kOutOfMemory);
  EXPECT_TRUE(full.oom->on_host);
  EXPECT_FALSE(full.oom->live.empty());
}

TEST(MemoryRunFaultTest, ABlockThatNobodyPredictedIsNamedWithItsNode) {
  ops::register_all();
  MemoryRunSpec spec = tiny_run(Mode::kStep, Granularity::kFused);
  spec.protocol.warmup = 0;
  const MemoryRun run =
      run_memory([](const RunSpec&) { return std::make_unique<LeakyDevice>(30); }, spec);
  EXPECT_NE(run.peak_bytes, run.map.peak_bytes);
  const std::vector<std::string> found = surprises(run);
  ASSERT_FALSE(found.empty());
  EXPECT_THAT(found, ::testing::Contains(::testing::HasSubstr("640")));
}

}  // namespace
}  // namespace tracestep
