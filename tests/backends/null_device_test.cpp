#include "backends/null/null_device.h"

#include <gtest/gtest.h>

#include "exec/eager.h"
#include "ops/functions.h"
#include "support/run_program.h"

namespace tracestep::testing {
namespace {

constexpr std::int64_t kTiB = std::int64_t{1} << 40;

class NullDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
};

// Two matrices of one tebibyte each and their sum.
Program huge() {
  Builder b("huge");
  const Type type{DType::kF32, {1 << 19, 1 << 19}};
  b.output("y", ops::add(b.parameter("a", type), b.parameter("b", type)));
  return b.finish();
}

TEST_F(NullDeviceTest, MemoryThatNoMachineHasIsCountedToTheByte) {
  const auto device = make_null_device();
  Store store(*device);
  EagerExecutor executor(store, huge());
  executor.run();
  EXPECT_EQ(device->allocator().stats().peak_requested_bytes, 3 * kTiB);
  EXPECT_EQ(executor.predicted_peak_bytes(), 3 * kTiB);
}

TEST_F(NullDeviceTest, ALimitMakesItRunOutOfMemoryWithTheLiveSet) {
  const auto device = make_null_device({.memory_limit = 3 * kTiB - 1});
  Store store(*device);
  EagerExecutor executor(store, huge());
  try {
    executor.run();
    FAIL() << "nothing was thrown";
  } catch (const OutOfMemory& e) {
    EXPECT_EQ(e.requested_bytes(), kTiB);
    EXPECT_EQ(e.live().size(), 2u);
  }
}

TEST_F(NullDeviceTest, CopiesLeaveTheBytesOfTheHostAlone) {
  const auto device = make_null_device();
  EXPECT_FALSE(device->computes());
  void* address = device->allocator().allocate(8, {});
  std::int64_t value = 7;
  device->copy_in(address, &value, 8);
  device->copy_out(&value, address, 8);
  device->allocator().free(address);
  EXPECT_EQ(value, 7);
}

TEST_F(NullDeviceTest, ItHasTheTraitsAndTheKernelsOfTheDeviceItStandsFor) {
  const auto device =
      make_null_device({.traits = {.kind = DeviceKind::kCuda, .threads = 3},
                        .has_kernel = [](const OpDef& op) { return op.name == "attention"; }});
  EXPECT_EQ(device->name(), "null");
  EXPECT_EQ(device->traits().kind, DeviceKind::kCuda);
  EXPECT_EQ(device->traits().threads, 3);
  EXPECT_TRUE(device->has_kernel(find_op("attention")));
  EXPECT_FALSE(device->has_kernel(find_op("add")));
}

}  // namespace
}  // namespace tracestep::testing
