// Executors describe a call to a device before it has addresses; what the device made of it needs
// nothing but addresses afterwards.
#include "exec/launches.h"

#include <gtest/gtest.h>

#include "backends/null/null_device.h"
#include "ir/builder.h"
#include "ir/parse.h"
#include "ops/functions.h"
#include "support/backends.h"
#include "support/host_values.h"
#include "support/wrapped_device.h"

namespace tracestep {
namespace {

// A device that keeps the specs it was given.
class SpyDevice final : public testing::WrappedDevice {
 public:
  SpyDevice() : WrappedDevice(make_null_device()) {}
  std::unique_ptr<PreparedKernel> prepare(KernelSpec spec) override {
    specs.push_back(spec);
    return WrappedDevice::prepare(std::move(spec));
  }

  std::vector<KernelSpec> specs;
};

TEST(LaunchesTest, AViewIsAlignedAsItsOffsetAllows) {
  ops::register_all();
  const Program program = parse_program(R"(program "p" {
    input %x : f32[64]
    %0 : f32[3] = slice(%x) {axis=0, start=3, stop=6}
    %1 : f32[4] = slice(%x) {axis=0, start=4, stop=8}
    %2 : f32[32] = slice(%x) {axis=0, start=32, stop=64}
    %3 : f32[3] = neg(%0)
    %4 : f32[4] = neg(%1)
    %5 : f32[32] = neg(%2)
    output "a" = %3
    output "b" = %4
    output "c" = %5
  })");
  SpyDevice device;
  const auto launches = prepare_launches(program, plan_buffers(program), device);
  ASSERT_EQ(launches.size(), 3u);
  const std::int64_t block = device.allocator().block_alignment();
  EXPECT_EQ(device.specs[0].inputs[0].alignment, 4);
  EXPECT_EQ(device.specs[1].inputs[0].alignment, 16);
  EXPECT_EQ(device.specs[2].inputs[0].alignment, std::min<std::int64_t>(128, block));
  for (const KernelSpec& spec : device.specs) EXPECT_EQ(spec.outputs[0].alignment, block);
  EXPECT_EQ(launches[1].inputs[0].offset_bytes, 16);
}

TEST(LaunchesTest, AlignmentIsThePowerOfTwoThatDividesBoth) {
  EXPECT_EQ(alignment_at(256, 0), 256);
  EXPECT_EQ(alignment_at(256, 1024), 256);
  EXPECT_EQ(alignment_at(256, 48), 16);
  EXPECT_EQ(alignment_at(64, 2), 2);
}

class PreparedKernelTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Devices, PreparedKernelTest,
                         ::testing::ValuesIn(testing::backend_names()));

// Its program is gone when the product is launched, first here and then there.
TEST_P(PreparedKernelTest, APreparedProductOutlivesItsProgramAndRunsAtAnyAddress) {
  ops::register_all();
  const auto device = testing::backend_named(GetParam()).make({});
  const Type type{DType::kF32, {5, 5}};
  std::unique_ptr<PreparedKernel> kernel;
  std::int64_t workspace_bytes = 0;
  {
    Builder b("product");
    b.output("y", b.call1("matmul", {b.input("a", type), b.input("b", type)},
                          {{"transpose_a", false}, {"transpose_b", true}}));
    const Program program = b.finish();
    std::vector<Launch> launches = prepare_launches(program, plan_buffers(program), *device);
    workspace_bytes = launches[0].workspace_bytes;
    kernel = std::move(launches[0].call.kernel);
  }
  const HostTensor values = testing::random_tensor(type, "values");
  const std::int64_t bytes = type.bytes();
  std::vector<HostTensor> results;
  std::vector<void*> all;
  for (int round = 0; round < 2; ++round) {
    std::vector<void*> blocks;
    for (const std::int64_t size : {bytes, bytes, bytes, workspace_bytes}) {
      blocks.push_back(device->allocator().allocate(size, {}));
    }
    device->copy_in(blocks[0], values.bytes.data(), bytes);
    device->copy_in(blocks[1], values.bytes.data(), bytes);
    kernel->launch({std::span(blocks).first(2), std::span(blocks).subspan(2, 1), blocks[3]},
                   {device->stream()});
    results.push_back(HostTensor::zeros(type.dtype, type.shape));
    device->copy_out(results.back().bytes.data(), blocks[2], bytes);
    all.insert(all.end(), blocks.begin(), blocks.end());  // kept, so that the next lie elsewhere
  }
  for (void* block : all) device->allocator().free(block);
  EXPECT_EQ(results[0].bytes, results[1].bytes);
  const auto x = values.as<float>();
  double sum = 0;
  for (std::size_t k = 0; k < 5; ++k) sum += static_cast<double>(x[5 + k]) * x[10 + k];
  EXPECT_NEAR(results[0].as<float>()[7], sum, 1e-5);  // row 1 times row 2
}

}  // namespace
}  // namespace tracestep
