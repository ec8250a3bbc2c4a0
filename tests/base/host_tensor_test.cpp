#include "base/host_tensor.h"

#include <gtest/gtest.h>

namespace tracestep {
namespace {

TEST(HostTensorTest, WideningIsExactForEveryFloatingDtype) {
  const std::vector<float> values{0.0f, -0.0f, 1.5f, -3.0f, 0x1p-14f};
  const auto expect_values = [&](const HostTensor& wide) {
    ASSERT_EQ(wide.dtype, DType::kF64);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(wide.as<double>()[i], static_cast<double>(values[i]));
    }
  };
  const HostTensor f32 = HostTensor::of<float>(DType::kF32, {5}, values);
  expect_values(widened(f32));
  expect_values(widened(widened(f32)));
  HostTensor bf16 = HostTensor::zeros(DType::kBF16, {5}), f16 = HostTensor::zeros(DType::kF16, {5});
  for (std::size_t i = 0; i < values.size(); ++i) {
    bf16.as<BF16>()[i] = to_bf16(values[i]);
    f16.as<F16>()[i] = to_f16(values[i]);
  }
  expect_values(widened(bf16));
  expect_values(widened(f16));
}

TEST(HostTensorTest, WideningReadsUnalignedBytesAndKeepsIntegers) {
  const float value = 2.5f;
  std::vector<std::byte> bytes(1 + sizeof(value));
  std::memcpy(bytes.data() + 1, &value, sizeof(value));
  const TensorView view(DType::kF32, {1}, std::span(bytes).subspan(1));
  EXPECT_EQ(widened(view).as<double>()[0], 2.5);
  const std::vector<std::int64_t> numbers{1, -2};
  const HostTensor integers = HostTensor::of<std::int64_t>(DType::kI64, {2}, numbers);
  EXPECT_EQ(widened(integers).dtype, DType::kI64);
  EXPECT_EQ(widened(integers).as<std::int64_t>()[1], -2);
}

}  // namespace
}  // namespace tracestep
