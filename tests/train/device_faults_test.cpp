// A fault in the middle of training ends it with its own error and leaves no memory behind; the
// device, once it works again, trains as before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/functions.h"
#include "support/backends.h"
#include "support/faulting_device.h"
#include "train/loop.h"

namespace tracestep {
namespace {

using testing::FaultingDevice;
using testing::FaultKind;
using ::testing::HasSubstr;

TrainOptions tiny_options() {
  TrainOptions out;
  out.run.model = {.vocab = 23, .d_model = 16, .d_ff = 32, .layers = 1, .heads = 2};
  out.run.shape = {.batch = 2, .context = 8};
  out.steps = 3;
  out.schedule = {ScheduleKind::kCosine, 1e-2, 1e-3, 2, 12};
  return out;
}

TrainResult train_on(Device& device) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 500; ++i) tokens.push_back(i * 7 % 23);
  return train(device, tiny_options(), memory_tokens("tokens", tokens), nullptr, nullptr, {});
}

class DeviceFaultsTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ops::register_all(); }

  // Breaks at the first launches of a step, in its middle, and in the one after.
  template <class Expect>
  static void at_several_launches(FaultKind kind, Expect&& expect) {
    for (int launch : {1, 2, 25, 60, 150}) {
      SCOPED_TRACE(launch);
      FaultingDevice device(testing::backend_named(GetParam()).make({}), kind, launch);
      expect(device);
      EXPECT_EQ(device.allocator().stats().requested_bytes, 0);
      device.repair();
      EXPECT_LT(train_on(device).last.loss, 10.0);
      EXPECT_EQ(device.allocator().stats().requested_bytes, 0);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, DeviceFaultsTest, ::testing::ValuesIn(testing::backend_names()));

TEST_P(DeviceFaultsTest, ALostDeviceIsNamedWithWhatItWasDoing) {
  for (FaultKind kind : {FaultKind::kLostAtLaunch, FaultKind::kLostAtSynchronize}) {
    at_several_launches(kind, [](FaultingDevice& device) {
      try {
        train_on(device);
        ADD_FAILURE() << "no error";
      } catch (const DeviceError& error) {
        EXPECT_THAT(error.what(), HasSubstr("the device was lost"));
        EXPECT_THAT(error.what(), HasSubstr(device.name()));
        EXPECT_EQ(exit_code(error.code()), exit_code(ErrorCode::kFailed));
      }
    });
  }
}

TEST_P(DeviceFaultsTest, MemoryThatEndsInAStepIsOutOfMemoryWithTheLiveSet) {
  at_several_launches(FaultKind::kOutOfMemory, [](FaultingDevice& device) {
    try {
      train_on(device);
      ADD_FAILURE() << "no error";
    } catch (const OutOfMemory& error) {
      EXPECT_FALSE(error.live().empty());
      EXPECT_GT(error.requested_bytes(), 0);
      EXPECT_EQ(exit_code(error.code()), exit_code(ErrorCode::kOutOfMemory));
    }
  });
}

}  // namespace
}  // namespace tracestep
