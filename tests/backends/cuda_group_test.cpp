// A GPU as a rank: what its group issues on lane 1 stands where the lane's events are, and is part
// of a captured step, although the group was made before the device belonged to it.
#ifdef TRACESTEP_WITH_CUDA
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>

#include "backends/comm/nccl/nccl_group.h"
#include "backends/cuda/cuda_device.h"
#include "exec/compiled.h"
#include "exec/eager.h"
#include "ir/parse.h"
#include "ops/functions.h"
#include "support/host_values.h"

namespace tracestep {
namespace {

constexpr int kSteps = 5, kProducts = 12;
constexpr std::int64_t kWidth = 1024;

class OneProcess final : public Processes {
 public:
  int rank() const override { return 0; }
  int count() const override { return 1; }
  int local_rank() const override { return 0; }
  std::vector<std::uint64_t> exchange(std::uint64_t own) override { return {own}; }
  void broadcast(std::span<std::byte>) override {}
  void wait_for_first() override {}
  void end_all(const std::string&, int status) override { std::_Exit(status); }
};

// The copy of the driver, since the runtime is inside the back end's library.
using DriverCopy = int (*)(std::uint64_t to, std::uint64_t from, std::size_t bytes, void* stream);
DriverCopy driver_copy() {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<DriverCopy>(::dlsym(driver, "cuMemcpyDtoDAsync_v2"));
}

// A group of one rank that issues copies where NCCL would issue its kernels, and remembers the
// lanes.
class CopyingGroup final : public Communicator {
 public:
  explicit CopyingGroup(StreamOfLane stream_of_lane) : stream_of_lane_(std::move(stream_of_lane)) {}
  int rank() const override { return 0; }
  int ranks() const override { return 1; }
  void all_reduce(const TensorRef& x, const TensorRef& y) override {
    lanes.push_back(lane_);
    const std::size_t bytes = static_cast<std::size_t>(x.count()) * size_of(x.dtype);
    ASSERT_EQ(driver_copy()(std::bit_cast<std::uint64_t>(y.data),
                            std::bit_cast<std::uint64_t>(x.data), bytes, stream_of_lane_(lane_)),
              0);
  }
  void reduce_scatter(const TensorRef&, const TensorRef&) override {}
  void all_gather(const TensorRef&, const TensorRef&) override {}
  Communicator& among(const RankGroup&) override { return *this; }
  void use_lane(int lane) override { lane_ = lane; }
  std::int64_t received_bytes() const override { return 0; }
  void end() override {}
  void restart() override {}

  std::vector<int> lanes;

 private:
  const StreamOfLane stream_of_lane_;
  int lane_ = 0;
};

// A chain of products, which takes lane 0 a while, and the sum of its result over the ranks, on
// lane 1, with a buffer of its own as the result is read behind it. Without a sum the result stands
// for it: that of one rank.
Program chain(bool sums) {
  const std::string type = fmt::format("f32[{0},{0}]", kWidth);
  std::string text =
      fmt::format("program \"chain\" {{\n  input %x : {0}\n  input %w : {0}\n", type);
  std::string last = "x";
  int next = 0;
  for (; next < kProducts; ++next) {
    text += fmt::format("  %{} : {} = matmul(%{}, %w) @ a forward\n", next, type, last);
    last = fmt::format("{}", next);
  }
  std::string sum = last;
  if (sums) {
    sum = fmt::format("{}", next++);
    text += fmt::format("  %{} : {} = all_reduce(%{}) {{ranks=1, lane=1}} @ a communication\n", sum,
                        type, last);
  }
  text += fmt::format("  %{0} : {1} = add(%{2}, %{3}) @ a forward\n  output \"y\" = %{0}\n}}\n",
                      next, type, last, sum);
  return parse_program(text);
}

struct Outcome {
  std::vector<HostTensor> results;
  std::int64_t kernels = 0;  // of a captured step

  bool operator==(const Outcome& other) const {
    return std::ranges::equal(results, other.results, [](const HostTensor& a, const HostTensor& b) {
      return a.bytes == b.bytes;
    });
  }
};

// Every step has an input of its own, so that a sum of an earlier one is seen.
Outcome run_chain(Device& device, bool sums, ExecutorKind kind) {
  Store store(device);
  const auto executor = make_executor(kind, store, chain(sums));
  const Type type{DType::kF32, {kWidth, kWidth}};
  executor->set_input("w", testing::random_tensor(type, "w", -0.05, 0.05));
  Outcome out;
  for (int i = 0; i < kSteps; ++i) {
    executor->set_input("x", testing::random_tensor(type, fmt::format("x {}", i)));
    executor->run();
    out.results.push_back(executor->output("y"));
  }
  EXPECT_EQ(executor->is_captured(), kind == ExecutorKind::kCompiled);
  out.kernels = executor->kernels().value_or(0);
  return out;
}

class CudaGroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (probe_cuda().devices == 0) GTEST_SKIP() << probe_cuda().problem;
    ops::register_all();
  }
  // `group` is made on a device that has been asked for its streams, and is joined afterwards.
  static void expect_order(Device& device, Communicator& group) {
    const void* const of_updates = native_stream_of(device, 1);
    device.join(&group);
    EXPECT_NE(native_stream_of(device, 1), of_updates);
    for (ExecutorKind kind : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
      const Outcome plain = run_chain(device, false, kind), summed = run_chain(device, true, kind);
      EXPECT_EQ(summed, plain) << name_of(kind);
      if (kind == ExecutorKind::kCompiled) {
        EXPECT_EQ(summed.kernels, plain.kernels + 1) << "the sum is part of the captured step";
      }
    }
    device.synchronize();
    device.join(nullptr);
  }
};

TEST_F(CudaGroupTest, WorkOfLaneOneIsOrderedAndCaptured) {
  const auto device = make_cuda_device();
  CopyingGroup group([&](int lane) { return native_stream_of(*device, lane); });
  expect_order(*device, group);
  EXPECT_EQ(std::ranges::count(group.lanes, 0), 0) << "lanes are those of the program";
  EXPECT_EQ(std::ranges::count(group.lanes, 1), kSteps + 2) << "one capture replays the others";
}

// Shows that the other tests would detect a group that keeps the earlier stream of lane 1.
TEST_F(CudaGroupTest, WorkOnTheStreamOfUpdatesIsNoPartOfACapturedStep) {
  const auto device = make_cuda_device();
  void* const of_updates = native_stream_of(*device, 1);
  CopyingGroup group([&](int) { return of_updates; });
  device->join(&group);
  const Outcome plain = run_chain(*device, false, ExecutorKind::kCompiled);
  EXPECT_EQ(run_chain(*device, true, ExecutorKind::kCompiled).kernels, plain.kernels);
  device->synchronize();
  device->join(nullptr);
}

// NCCL copies where a rank is alone.
TEST_F(CudaGroupTest, CollectivesOfNcclAreOrderedAndCaptured) {
  std::string problem;
  if (nccl_version(problem).empty()) GTEST_SKIP() << problem;
  const auto device = make_cuda_device();
  OneProcess alone;
  const auto group =
      make_nccl_group(alone, [&](int lane) { return native_stream_of(*device, lane); });
  expect_order(*device, *group);
}

}  // namespace
}  // namespace tracestep
#endif
