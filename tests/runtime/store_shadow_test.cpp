// A parameter's narrow copy holds what the parameter does, whoever came first.
#include <gtest/gtest.h>

#include "ir/parse.h"
#include "ops/functions.h"
#include "runtime/store.h"
#include "support/backends.h"
#include "support/host_values.h"

namespace tracestep {
namespace {

constexpr const char* kPlain = R"(program "plain" {
  parameter %w : f32[3]
  output "y" = %w
})";
constexpr const char* kShadowed = R"(program "shadowed" {
  parameter %w : f32[3]
  state %shadow.w : bf16[3] !weight_cast
  %0 : f32[3] = add(%w, %w)
  %1 : bf16[3] = cast(%0) {dtype=bf16}
  update %w = %0
  update %shadow.w = %1
})";
constexpr const char* kForgets = R"(program "forgets" {
  parameter %w : f32[3]
  %0 : f32[3] = add(%w, %w)
  update %w = %0
})";

constexpr const char* kCoded = R"(program "coded" {
  parameter %w : f32[3]
  state %codes.found.1 : f32[1,2] !weight_cast
  %0 : f32[3] = add(%w, %w)
  %1 : f32[1,2] = fill() {value=1.0, dtype=f32, shape=[1,2]}
  update %w = %0
  update %codes.found.1 = %1
})";

class StoreShadowTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static HostTensor values(double first) {
    return testing::from_doubles(DType::kF32, {3}, std::vector{first, 1.00390625, -3.3});
  }
};

TEST_F(StoreShadowTest, ItFollowsTheParameterBoundBeforeOrAfter) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    const auto device = backend.make({});
    Store store(*device);
    store.bind(parse_program(kPlain));
    store.set("w", values(0.1));
    store.bind(parse_program(kShadowed));
    EXPECT_EQ(store.get("shadow.w").bytes, as_dtype(values(0.1), DType::kBF16).bytes);
    store.set("w", values(7.7));
    store.bind(parse_program(kPlain));
    EXPECT_EQ(store.get("shadow.w").bytes, as_dtype(values(7.7), DType::kBF16).bytes);
  }
}

TEST_F(StoreShadowTest, AProgramThatWouldLeaveItBehindIsRefused) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    const auto device = backend.make({});
    Store store(*device);
    store.bind(parse_program(kShadowed));
    EXPECT_THROW(store.bind(parse_program(kForgets)), Error);
  }
}

TEST_F(StoreShadowTest, WhatWasFoundOfCodesIsForgottenWhenAnythingIsSet) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    const auto device = backend.make({});
    Store store(*device);
    store.bind(parse_program(kCoded));
    const HostTensor found = testing::from_doubles(DType::kF32, {1, 2}, std::vector{2.0, 3.0});
    device->copy_in(store.at("codes.found.1").data, found.bytes.data(), 8);
    EXPECT_EQ(store.get("codes.found.1").bytes, found.bytes);
    store.set("w", values(0.1));
    EXPECT_EQ(store.get("codes.found.1").bytes, HostTensor::zeros(DType::kF32, {1, 2}).bytes);
    EXPECT_THROW(store.bind(parse_program(kForgets)), Error);
    EXPECT_NO_THROW(store.bind(parse_program(kPlain)));
  }
}

}  // namespace
}  // namespace tracestep
