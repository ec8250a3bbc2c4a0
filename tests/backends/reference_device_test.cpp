#include "backends/reference/reference_device.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/functions.h"
#include "support/host_values.h"
#include "support/run_program.h"

namespace tracestep::testing {
namespace {

class ReferenceDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
};

// One op on one operand of the given values.
std::vector<double> applied(std::string_view op, DType dtype, const std::vector<double>& values,
                            const Attrs& attrs = {}) {
  Builder b("one");
  const Shape shape{static_cast<std::int64_t>(values.size())};
  b.output("y", b.call1(op, {b.input("x", {dtype, shape})}, attrs));
  return to_doubles(
      reference_values(b.finish(), {{"x", from_doubles(dtype, shape, values)}}).at("y"));
}

TEST_F(ReferenceDeviceTest, CastsSaturateInsteadOfOverflowing) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(applied("cast", DType::kF64, {2.9, -2.9, 1e300, -1e300, nan}, {{"dtype", DType::kI32}}),
            (std::vector<double>{2, -2, 2147483647, -2147483648.0, 0}));
  EXPECT_EQ(applied("cast", DType::kF64, {0.0, -0.0, 0.25, nan}, {{"dtype", DType::kBool}}),
            (std::vector<double>{0, 0, 1, 1}));
}

TEST_F(ReferenceDeviceTest, IntegersWrapAround) {
  Builder b("wrap");
  const Type type{DType::kI32, {1}};
  const Val x = b.input("x", type);
  b.output("sum", ops::add(x, x));
  b.output("product", ops::mul(x, x));
  const Tensors out = reference_values(
      b.finish(), {{"x", from_doubles(DType::kI32, {1}, std::vector{2147483647.0})}});
  EXPECT_EQ(out.at("sum").as<std::int32_t>()[0], -2);
  EXPECT_EQ(out.at("product").as<std::int32_t>()[0], 1);
}

TEST_F(ReferenceDeviceTest, AMaximumOverNothingIsMinusInfinityAndASumIsZero) {
  Builder b("nothing");
  const Val x = b.input("x", {DType::kF64, {0, 2}});
  b.output("max", ops::max(x, {0}));
  b.output("sum", ops::sum(x, {0}));
  const Program program = b.finish();
  const Tensors out = reference_values(program, random_leaves(program));
  EXPECT_EQ(to_doubles(out.at("max")), std::vector<double>(2, -INFINITY));
  EXPECT_EQ(to_doubles(out.at("sum")), std::vector<double>(2, 0.0));
}

TEST_F(ReferenceDeviceTest, ASumForgetsNoSmallTerm) {
  std::vector<double> values(1001, 1e-16);
  values[0] = 1.0;
  EXPECT_EQ(applied("sum", DType::kF64, values, {{"axes", Dims{0}}})[0], 1.0 + 1e-13);
}

TEST_F(ReferenceDeviceTest, AFloat32ProgramMustBeConvertedFirst) {
  Builder b("narrow");
  b.output("y", ops::silu(b.input("x", {DType::kF32, {2}})));
  const Program program = b.finish();
  const auto device = make_reference_device();
  EXPECT_FALSE(device->supports(DType::kF32));
  try {
    run_program(*device, program, random_leaves(program));
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "[silu] f32 is not supported on reference");
  }
}

TEST_F(ReferenceDeviceTest, ALimitMakesItSmaller) {
  Builder b("large");
  b.output("y", ops::silu(b.input("x", {DType::kF64, {1000}})));
  const Program program = b.finish();
  const auto device = make_reference_device({.memory_limit = 15999});
  EXPECT_THROW(run_program(*device, program, random_leaves(program)), OutOfMemory);
  EXPECT_EQ(device->allocator().stats().requested_bytes, 0);
  device->allocator().set_limit(16000);
  run_program(*device, program, random_leaves(program));
}

}  // namespace
}  // namespace tracestep::testing
