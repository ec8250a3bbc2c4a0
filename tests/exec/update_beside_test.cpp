// Steps whose updates run beside backward: the same bits, also where lane 1 runs as late as the
// plan allows, and the bytes that were predicted.
#include <gtest/gtest.h>

#include "analysis/buffer_plan.h"
#include "backends/null/null_device.h"
#include "exec/small_steps.h"
#include "ops/functions.h"
#include "passes/pipeline.h"
#include "spec/fields.h"
#include "support/backends.h"

namespace tracestep {
namespace {

constexpr DeviceTraits kGpu{.kind = DeviceKind::kCuda};

std::vector<RunSpec> all_steps() {
  std::vector<RunSpec> out;
  for (ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
    for (const char* precision : {"fp32", "bf16"}) {
      for (UpdateTime updates : kAll<UpdateTime>) {
        RunSpec spec = testing::small_step(Mode::kStep, Granularity::kFused);
        spec.executor = executor;
        spec.precision = parse_precision("test", precision);
        spec.updates = updates;
        spec.compile_passes = {"shadow", "merge", "join"};
        out.push_back(spec);
      }
    }
  }
  return out;
}

// Takes the passes of a device that has two lanes, whatever the device.
Program program_of(RunSpec spec, const Device& device, bool beside) {
  if (beside) spec.compile_passes->insert("update_beside");
  return run_pipeline(
             forward_program(spec), spec,
             {.traits = kGpu, .has_kernel = [&](const OpDef& op) { return device.has_kernel(op); }})
      .program;
}

std::ptrdiff_t nodes_beside(const Program& program) {
  return std::ranges::count_if(plan_buffers(program).turns,
                               [](const Turn& turn) { return turn.lane == 1; });
}

class UpdatesBesideTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
};

TEST_F(UpdatesBesideTest, EveryStepHasSomeAndTheirBitsStay) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    for (const RunSpec& spec : all_steps()) {
      SCOPED_TRACE(backend.name + " " + label_of(spec));
      const auto guarded = backend.make({.guarded = true}), free = backend.make({});
      const Program program = program_of(spec, *free, true);
      EXPECT_GT(nodes_beside(program), 1);
      const auto plain = testing::results_of(spec.executor, program_of(spec, *free, false), *free);
      EXPECT_EQ(testing::results_of(spec.executor, program, *free), plain);
      EXPECT_EQ(testing::results_of(spec.executor, program, *guarded), plain) << "guarded";
    }
  }
}

TEST_F(UpdatesBesideTest, TheyAreTheDefaultWhereStatesLieInTheHostsMemory) {
  const auto device = make_null_device({.traits = kGpu});
  for (ExecutorKind executor : kAll<ExecutorKind>) {
    RunSpec spec = testing::small_step(Mode::kStep, Granularity::kFused);
    spec.executor = executor;
    EXPECT_EQ(nodes_beside(step_program(spec, *device)), 0);
    spec.offload = Offload::kOptimizer;
    EXPECT_EQ(nodes_beside(step_program(spec, *device)) > 0, has_arena(executor));
  }
}

TEST_F(UpdatesBesideTest, ThePeakIsThatWhichWasPredicted) {
  for (RunSpec spec : all_steps()) {
    for (Offload offload : kAll<Offload>) {
      spec.offload = offload;
      SCOPED_TRACE(label_of(spec));
      const auto device = make_null_device({.traits = kGpu});
      const Program program = program_of(spec, *device, true);
      Store store(*device);
      const auto executor = make_executor(spec.executor, store, program);
      executor->run();
      EXPECT_EQ(device->allocator().stats().peak_requested_bytes, executor->predicted_peak_bytes());
      EXPECT_EQ(device->host_bytes() > 0, offload != Offload::kNone);
    }
  }
}

}  // namespace
}  // namespace tracestep
