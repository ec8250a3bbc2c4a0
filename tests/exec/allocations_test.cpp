// A compiled step asks for no memory once it has run: neither from the device's allocator nor from
// the host's heap. Allocations planted in a kernel are seen.
#include <gtest/gtest.h>

#include "exec/small_steps.h"
#include "ops/functions.h"
#include "support/allocation_peak.h"
#include "support/backends.h"
#include "support/wrapped_device.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

using testing::HeapCalls;

struct StepCalls {
  HeapCalls heap;
  std::int64_t device_allocations = 0;
  std::int64_t device_bytes_kept = 0;  // by the step
};

// The calls of one step, after `before` others.
StepCalls calls_of_a_step(Device& device, const RunSpec& spec, ExecutorKind kind, int before = 2) {
  Store store(device);
  const auto executor = make_executor(kind, store, step_program(spec, device));
  initialize_parameters(store, 1);
  testing::set_inputs(*executor);
  for (int i = 0; i < before; ++i) executor->run();
  const AllocatorStats& now = device.allocator().stats();
  const AllocatorStats then = now;
  StepCalls out;
  out.heap = testing::heap_calls_of([&] {
    executor->run();
    device.synchronize();
  });
  out.device_allocations = now.allocation_count - then.allocation_count;
  out.device_bytes_kept = now.requested_bytes - then.requested_bytes;
  return out;
}

class AllocationsTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ops::register_all(); }
  static std::unique_ptr<Device> make() { return testing::backend_named(GetParam()).make({}); }
};

INSTANTIATE_TEST_SUITE_P(Devices, AllocationsTest, ::testing::ValuesIn(testing::backend_names()));

TEST_P(AllocationsTest, ACompiledStepAllocatesAndFreesNothing) {
  for (Mode mode : kAll<Mode>) {
    for (Granularity ops : kAllGranularities) {
      for (AttentionForm attention : kAll<AttentionForm>) {
        for (const char* precision : {"fp32", "bf16"}) {
          RunSpec spec = testing::small_step(mode, ops, attention);
          spec.precision = parse_precision("test", precision);
          const auto device = make();
          const StepCalls calls = calls_of_a_step(*device, spec, ExecutorKind::kCompiled);
          SCOPED_TRACE(fmt::format("{} {} {} {}", name_of(mode), name_of(ops), name_of(attention),
                                   precision));
          EXPECT_EQ(calls.heap.allocations, 0);
          EXPECT_EQ(calls.heap.frees, 0);
          EXPECT_EQ(calls.device_allocations, 0);
          EXPECT_EQ(calls.device_bytes_kept, 0);
        }
      }
    }
  }
}

TEST_P(AllocationsTest, AnEagerStepAsksTheDevice) {
  const auto device = make();
  const StepCalls calls = calls_of_a_step(
      *device, testing::small_step(Mode::kStep, Granularity::kFused), ExecutorKind::kEager);
  EXPECT_GT(calls.device_allocations, 0);
}

// Adds `work` to the first launch of every step.
class BusyDevice final : public testing::WrappedDevice {
 public:
  BusyDevice(std::unique_ptr<Device> device, std::function<void(Device&)> work)
      : WrappedDevice(std::move(device)), work_(std::move(work)) {}

  std::unique_ptr<PreparedKernel> prepare(KernelSpec spec) override {
    auto kernel = inner().prepare(std::move(spec));
    if (is_used_) return kernel;
    is_used_ = true;
    return std::make_unique<Kernel>(*this, std::move(kernel));
  }
  // Else only the capture would do the work.
  std::unique_ptr<CapturedWork> capture(const std::function<void()>&) override { return nullptr; }

 private:
  class Kernel final : public PreparedKernel {
   public:
    Kernel(BusyDevice& device, std::unique_ptr<PreparedKernel> kernel)
        : device_(device), kernel_(std::move(kernel)) {}
    void launch(const LaunchOperands& operands, const LaunchContext& context) override {
      device_.work_(device_);
      kernel_->launch(operands, context);
    }

   private:
    BusyDevice& device_;
    const std::unique_ptr<PreparedKernel> kernel_;
  };

  const std::function<void(Device&)> work_;
  bool is_used_ = false;
};

TEST_P(AllocationsTest, OneAllocationInAKernelIsSeen) {
  const auto calls_with = [](std::function<void(Device&)> work) {
    BusyDevice device(make(), std::move(work));
    return calls_of_a_step(device, testing::small_step(Mode::kStep, Granularity::kFused),
                           ExecutorKind::kCompiled);
  };
  const StepCalls none = calls_with([](Device&) {});
  const StepCalls heap = calls_with([](Device&) { delete new volatile int(0); });
  EXPECT_EQ(heap.heap.allocations, none.heap.allocations + 1);
  EXPECT_EQ(heap.heap.frees, none.heap.frees + 1);
  const StepCalls device =
      calls_with([](Device& d) { d.allocator().free(d.allocator().allocate(64, {})); });
  EXPECT_EQ(device.device_allocations, 1);
}

}  // namespace
}  // namespace tracestep
