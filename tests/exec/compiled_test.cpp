// The compiled executor: the bits of the eager one, in an arena, and nothing allocated in a run.
#include "exec/compiled.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backends/null/null_device.h"
#include "exec/small_steps.h"
#include "ops/functions.h"
#include "support/backends.h"
#include "support/faulting_device.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

using testing::results_of;
using testing::set_inputs;
using testing::small_step;

class CompiledTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ops::register_all(); }
  static std::unique_ptr<Device> make(std::int64_t limit = 0) {
    if (GetParam() == "null") return make_null_device({.memory_limit = limit});
    return testing::backend_named(GetParam()).make({.memory_limit = limit});
  }
};

class CompiledNumbersTest : public CompiledTest {};

TEST_P(CompiledNumbersTest, ItComputesTheBitsOfTheEagerOne) {
  for (Mode mode : kAll<Mode>) {
    for (Granularity ops : {Granularity::kPrimitive, Granularity::kFused}) {
      for (AttentionForm attention : {AttentionForm::kNaive, AttentionForm::kFlash}) {
        for (const char* precision : {"fp32", "bf16"}) {
          RunSpec spec = small_step(mode, ops, attention);
          spec.precision = parse_precision("test", precision);
          const auto eager_device = make(), compiled_device = make();
          EXPECT_EQ(results_of(ExecutorKind::kCompiled, spec, *compiled_device),
                    results_of(ExecutorKind::kEager, spec, *eager_device))
              << name_of(mode) << " " << name_of(ops) << " " << name_of(attention) << " "
              << precision;
        }
      }
    }
  }
}

TEST_P(CompiledNumbersTest, APauseSeesTheValuesThatTheEagerOneShows) {
  const auto values = [&](ExecutorKind kind) {
    const auto device = make();
    Store store(*device);
    const auto executor = make_executor(
        kind, store, step_program(small_step(Mode::kStep, Granularity::kFused), *device));
    initialize_parameters(store, 1);
    set_inputs(*executor);
    std::vector<std::optional<std::vector<std::byte>>> out;
    std::vector<RunObserver::Pause> pauses;
    const auto count = static_cast<ValueId>(executor->program().values.size());
    for (NodeId id : {5, 40, 1 << 20}) {
      pauses.push_back({id, [&] {
                          for (ValueId v = 0; v < count; ++v) {
                            const auto value = executor->value(v);
                            out.push_back(value ? std::optional(value->bytes) : std::nullopt);
                          }
                        }});
    }
    executor->observe({.pauses = pauses});
    executor->run();
    executor->run();
    return out;
  };
  EXPECT_EQ(values(ExecutorKind::kCompiled), values(ExecutorKind::kEager));
}

TEST_P(CompiledNumbersTest, ALaunchThatFailsLeavesItUsable) {
  testing::FaultingDevice device(make(), testing::FaultKind::kLostAtLaunch, 20);
  Store store(device);
  CompiledExecutor executor(
      store, step_program(small_step(Mode::kForwardBackward, Granularity::kFused), device));
  initialize_parameters(store, 1);
  set_inputs(executor);
  EXPECT_THROW(executor.run(), DeviceError);
  EXPECT_FALSE(executor.value(executor.program().find_output("loss")).has_value());
  device.repair();
  executor.run();
  EXPECT_TRUE(std::isfinite(executor.scalar("loss")));
}

TEST_P(CompiledTest, ThePeakIsThePredictedOneAndARunAllocatesNothing) {
  for (Mode mode : kAll<Mode>) {
    const auto device = make();
    {
      Store store(*device);
      const Program program = step_program(small_step(mode, Granularity::kFused), *device);
      CompiledExecutor executor(store, program);
      EXPECT_EQ(executor.predicted_peak_bytes(),
                predicted_peak_bytes(ExecutorKind::kCompiled, program, device->traits()));
      initialize_parameters(store, 1);
      set_inputs(executor);
      const std::int64_t before = device->allocator().stats().allocation_count;
      for (int i = 0; i < 3; ++i) executor.run();
      EXPECT_EQ(device->allocator().stats().allocation_count, before) << name_of(mode);
      EXPECT_EQ(device->allocator().stats().peak_requested_bytes, executor.predicted_peak_bytes());
    }
    EXPECT_EQ(device->allocator().stats().requested_bytes, 0);
  }
}

TEST_P(CompiledTest, ALimitAtLeavesAndArenaPassesAndOneByteLessIsNoticedWhenItIsMade) {
  std::int64_t peak = 0;
  {
    const auto device = make();
    Store store(*device);
    const Program program = step_program(small_step(Mode::kStep, Granularity::kFused), *device);
    const Plan plan = CompiledExecutor(store, program).plan();
    peak = plan.leaf_bytes + plan.arena_bytes;
  }
  for (const std::int64_t limit : {peak, peak - 1}) {
    const auto device = make(limit);
    {
      Store store(*device);
      const Program program = step_program(small_step(Mode::kStep, Granularity::kFused), *device);
      if (limit == peak) {
        CompiledExecutor executor(store, program);
        initialize_parameters(store, 1);
        set_inputs(executor);
        EXPECT_NO_THROW(executor.run());
      } else {
        EXPECT_THROW(CompiledExecutor(store, program), OutOfMemory);
      }
    }
    EXPECT_EQ(device->allocator().stats().requested_bytes, 0);
  }
}

// A request or a release of memory by a node.
struct Request {
  MemoryAction action;
  Category category;
  NodeId node;
  std::int64_t bytes;
  bool operator==(const Request&) const = default;
};

TEST_P(CompiledTest, ARecordedRunHasTheSpansAndTheMemoryEventsOfTheEagerOne) {
  const auto requests = [&](ExecutorKind kind) {
    const auto device = make();
    Store store(*device);
    const auto executor = make_executor(
        kind, store, step_program(small_step(Mode::kStep, Granularity::kFused), *device));
    initialize_parameters(store, 1);
    set_inputs(*executor);
    executor->run();
    executor->release_outputs();
    Recorder recorder({.spans = true, .memory = true});
    device->allocator().set_recorder(&recorder);
    executor->observe({.recorder = &recorder});
    executor->run();
    executor->release_outputs();
    device->allocator().set_recorder(nullptr);
    EXPECT_EQ(std::ssize(recorder.spans()), executor->launches());
    std::vector<Request> out;
    for (const MemoryEvent& e : recorder.memory_events()) {
      if (e.action != MemoryAction::kAlloc && e.action != MemoryAction::kFree) continue;
      out.push_back({e.action, e.category, e.node, e.requested_bytes});
    }
    return std::pair(out, recorder.peak_requested_bytes());
  };
  EXPECT_EQ(requests(ExecutorKind::kCompiled), requests(ExecutorKind::kEager));
}

INSTANTIATE_TEST_SUITE_P(Planned, CompiledTest, ::testing::Values("null"));
INSTANTIATE_TEST_SUITE_P(Devices, CompiledTest, ::testing::ValuesIn(testing::backend_names()));
INSTANTIATE_TEST_SUITE_P(Devices, CompiledNumbersTest,
                         ::testing::ValuesIn(testing::backend_names()));

}  // namespace
}  // namespace tracestep
