// The compiled executor with a guarded allocator: right plans pass, planted mistakes are named.
#include "exec/plan_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exec/compiled.h"
#include "exec/small_steps.h"
#include "ir/parse.h"
#include "ops/functions.h"
#include "support/backends.h"
#include "support/temp_folder.h"
#include "support/wrapped_device.h"

namespace tracestep {
namespace {

using testing::small_step;
using testing::WrappedDevice;

class PlanGuardTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ops::register_all(); }
  static std::unique_ptr<Device> guarded() {
    return testing::backend_named(GetParam()).make({.guarded = true});
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, PlanGuardTest, ::testing::ValuesIn(testing::backend_names()));

// Three buffers of 256 bytes: %0 and %1 at once, then %2, which takes the place of either. %1 stays
// alive until the end.
constexpr const char* kThree = R"(program "three" {
  input %x : f32[8,8]
  %0 : f32[8,8] = exp(%x) @ first forward
  %1 : f32[8,8] = matmul(%0, %x) @ second forward
  %2 : f32[8,8] = matmul(%1, %x) @ third forward
  %3 : f32[8,8] = matmul(%2, %1) @ fourth forward
  output "y" = %3
  output "z" = %1
})";

TEST_P(PlanGuardTest, StepsOfEveryModePass) {
  for (Mode mode : kAll<Mode>) {
    for (Granularity ops : kAllGranularities) {
      for (AttentionForm attention : kAll<AttentionForm>) {
        const RunSpec spec = small_step(mode, ops, attention);
        const auto device = guarded(), plain = testing::backend_named(GetParam()).make({});
        EXPECT_EQ(testing::results_of(ExecutorKind::kCompiled, spec, *device),
                  testing::results_of(ExecutorKind::kCompiled, spec, *plain));
      }
    }
  }
}

// The place of the result of node `id`.
Plan::Place& place_of(Plan& plan, const Program& program, NodeId id) {
  const int buffer =
      plan.buffer_plan.buffer_of[static_cast<std::size_t>(program.node(id).outputs[0])];
  return plan
      .places[static_cast<std::size_t>(plan.place_of_buffer[static_cast<std::size_t>(buffer)])];
}

std::string failure_of(Device& device, const Program& program, const Plan& plan) {
  Store store(device);
  CompiledExecutor executor(store, program, plan);
  testing::set_inputs(executor);
  return message_of(ErrorCode::kFailed, [&] { executor.run(); });
}

TEST_P(PlanGuardTest, APlanThatLaysTwoLivingBuffersOverEachOtherIsNamed) {
  const auto device = guarded();
  const Program program = parse_program(kThree);
  Plan plan = plan_step(program, device->traits());
  place_of(plan, program, 2).offset = place_of(plan, program, 1).offset + 128;
  plan.arena_bytes += 256;
  const std::string message = failure_of(*device, program, plan);
  EXPECT_THAT(message, ::testing::HasSubstr("node 2 (third): result 0 of node 2 matmul (third)"));
  EXPECT_THAT(message, ::testing::HasSubstr("overlaps result 0 of node 1 matmul (second)"));
}

// A device whose launch number `launch` also writes a byte somewhere in the arena.
class StrayDevice final : public WrappedDevice {
 public:
  StrayDevice(std::unique_ptr<Device> device, int launch, std::int64_t offset)
      : WrappedDevice(std::move(device)), launches_left_(launch), offset_(offset) {}

  std::unique_ptr<PreparedKernel> prepare(KernelSpec spec) override {
    return std::make_unique<Kernel>(*this, inner().prepare(std::move(spec)));
  }

 private:
  class Kernel final : public PreparedKernel {
   public:
    Kernel(StrayDevice& device, std::unique_ptr<PreparedKernel> kernel)
        : device_(device), kernel_(std::move(kernel)) {}
    void launch(const LaunchOperands& operands, const LaunchContext& context) override {
      kernel_->launch(operands, context);
      if (device_.launches_left_-- == 0) device_.write(operands.outputs[0]);
    }

   private:
    StrayDevice& device_;
    const std::unique_ptr<PreparedKernel> kernel_;
  };

  void write(void* result) {
    const std::byte stray{0x5A};
    copy_in(static_cast<std::byte*>(result) + offset_, &stray, 1);
  }

  int launches_left_;
  const std::int64_t offset_;  // from the launch's first result
};

TEST_P(PlanGuardTest, AWriteIntoADeadRangeIsNamed) {
  const Program program = parse_program(kThree);
  Plan plan = plan_step(program, guarded()->traits());
  // The last node's result lies elsewhere than that of the first, which is dead by then.
  const std::int64_t to_dead =
      place_of(plan, program, 0).offset - place_of(plan, program, 3).offset;
  ASSERT_NE(to_dead, 0);
  StrayDevice device(guarded(), 3, to_dead + 8);
  const std::string message = failure_of(device, program, plan);
  EXPECT_THAT(message, ::testing::HasSubstr("node 3 (fourth): wrote bytes"));
  EXPECT_THAT(message, ::testing::HasSubstr("result 0 of node 0 exp (first)"));
  EXPECT_THAT(message, ::testing::HasSubstr("which is dead"));
}

TEST_P(PlanGuardTest, AWriteIntoAnOperandIsNamed) {
  const Program program = parse_program(kThree);
  Plan plan = plan_step(program, guarded()->traits());
  const std::int64_t to_operand =
      place_of(plan, program, 1).offset - place_of(plan, program, 2).offset;
  StrayDevice device(guarded(), 2, to_operand);
  EXPECT_THAT(failure_of(device, program, plan),
              ::testing::ContainsRegex("node 2 \\(third\\): wrote .*result 0 of node 1 matmul "
                                       "\\(second\\).*, which is still needed"));
}

TEST_P(PlanGuardTest, AWriteIntoAGapIsNamed) {
  const Program program = parse_program(kThree);
  Plan plan = plan_step(program, guarded()->traits());
  const std::int64_t end = plan.arena_bytes;
  plan.arena_bytes += 256;
  StrayDevice device(guarded(), 0, end - place_of(plan, program, 0).offset);
  EXPECT_THAT(failure_of(device, program, plan),
              ::testing::HasSubstr(fmt::format("node 0 (first): wrote bytes {0} to {0} of the "
                                               "arena: no buffer's",
                                               end)));
}

}  // namespace
}  // namespace tracestep
