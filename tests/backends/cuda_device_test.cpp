// The CUDA device itself: what it refuses, what it reports, and what it leaves behind.
#ifdef TRACESTEP_WITH_CUDA
#include "backends/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "backends/cpu/cpu_device.h"
#include "exec/compiled.h"
#include "exec/eager.h"
#include "ops/functions.h"
#include "spec/step_program.h"
#include "support/host_values.h"
#include "support/run_program.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr int kCycles = 1000;

bool has_gpu() {
  return probe_cuda().devices > 0;
}

std::string message_of_making(int index) {
  try {
    make_cuda_device({.index = index});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDevice);
    return error.what();
  }
  return "no error";
}

std::int64_t resident_host_bytes() {
  long pages = 0, resident = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * 4096;
}

RunSpec small_step() {
  RunSpec spec;
  spec.model = {.vocab = 101, .d_model = 64, .d_ff = 136, .layers = 2, .heads = 2};
  spec.shape = {.batch = 2, .context = 33};
  spec.mode = Mode::kStep;
  return spec;
}

// The parameters after `steps` steps on fixed tokens, as bytes.
std::vector<std::byte> train_some(Device& device, const RunSpec& spec, int steps) {
  Store store(device);
  EagerExecutor executor(store, step_program(spec, device));
  initialize_parameters(store, 1);
  for (const char* name : {"tokens", "targets"}) {
    const Type& type = executor.program().type(executor.program().find_leaf(name));
    executor.set_input(name, testing::random_tensor(type, name, 0.0, 100.0));
  }
  for (const char* name : {"lr", "step_size"}) {
    executor.set_input(name, testing::from_doubles(DType::kF32, {}, std::vector{0.01}));
  }
  for (int i = 0; i < steps; ++i) executor.run();
  std::vector<std::byte> bytes;
  for (const auto& [name, tensor] : parameters_of(store)) {
    bytes.insert(bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
  }
  return bytes;
}

// Every loss of `steps` replayed steps, each on other tokens, so that what is read too early
// differs from what should have been read; and the parameters after them.
std::vector<std::byte> replay_some(Device& device, const RunSpec& spec, int steps) {
  Store store(device);
  CompiledExecutor executor(store, step_program(spec, device));
  initialize_parameters(store, 1);
  for (const char* name : {"lr", "step_size"}) executor.set_scalar(name, 0.01);
  std::vector<std::byte> bytes;
  const auto add = [&](const HostTensor& x) {
    bytes.insert(bytes.end(), x.bytes.begin(), x.bytes.end());
  };
  for (int i = 0; i < steps; ++i) {
    for (const char* name : {"tokens", "targets"}) {
      const Type& type = executor.program().type(executor.program().find_leaf(name));
      const std::string seed = fmt::format("{} {}", name, i);
      executor.set_input(name, testing::random_tensor(type, seed, 0.0, 100.0));
    }
    executor.run();
    add(executor.output("loss"));
  }
  EXPECT_TRUE(executor.is_captured());
  for (const auto& [name, tensor] : parameters_of(store)) add(tensor);
  return bytes;
}

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
};

TEST_F(CudaDeviceTest, WithoutAGpuTheReasonIsGiven) {
  if (has_gpu()) {
    EXPECT_EQ(probe_cuda().problem, "");
    return;
  }
  EXPECT_NE(probe_cuda().problem, "");
  EXPECT_THAT(message_of_making(0), HasSubstr(probe_cuda().problem));
}

TEST_F(CudaDeviceTest, AnIndexThatIsNotThereIsRefused) {
  EXPECT_THAT(message_of_making(99), HasSubstr(has_gpu() ? "there is no cuda:99" : "[cuda]"));
  EXPECT_THAT(message_of_making(-1), HasSubstr(has_gpu() ? "there is no cuda:-1" : "[cuda]"));
}

// Everything below needs a device.
class CudaGpuTest : public CudaDeviceTest {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << probe_cuda().problem;
    CudaDeviceTest::SetUp();
  }
};

// Copies, zeroes and kernels reach it as they reach the device's own memory.
TEST_F(CudaGpuTest, HostMemoryIsReachedLikeTheDevicesOwn) {
  for (bool guarded : {false, true}) {
    const auto device = make_cuda_device({.guarded = guarded});
    const std::int64_t before = device->allocator().stats().requested_bytes;
    RunSpec spec = small_step();
    const std::vector<std::byte> plain = train_some(*device, spec, 3);
    spec.offload = Offload::kOptimizer;
    EXPECT_EQ(train_some(*device, spec, 3), plain) << guarded;
    EXPECT_EQ(device->host_bytes(), 0);
    EXPECT_EQ(device->allocator().stats().requested_bytes, before);
    for (const std::int64_t size : {9 * kMiB, 70 * kMiB}) {  // the driver's pages, and our own
      std::vector<std::byte> bytes(static_cast<std::size_t>(size), std::byte{7});
      std::vector<std::byte> back(bytes.size());
      void* data = device->host_allocator().allocate(size, {});
      device->copy_in(data, bytes.data(), size);
      device->copy_out(back.data(), data, size);
      EXPECT_TRUE(back == bytes) << size;
      device->zero(data, size);
      device->copy_out(back.data(), data, size);
      EXPECT_TRUE(back == std::vector<std::byte>(bytes.size())) << size;
      device->host_allocator().free(data);
    }
  }
}

TEST_F(CudaGpuTest, HostMemoryThatCannotBePinnedIsOutOfMemory) {
  const auto device = make_cuda_device();
  try {
    device->host_allocator().allocate(std::int64_t{1} << 50, {});
    ADD_FAILURE() << "a PiB of pinned memory";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), HasSubstr("pinned host memory"));
    EXPECT_EQ(error.limit_bytes(), 0);
  }
  EXPECT_EQ(device->host_bytes(), 0);
  device->synchronize();  // the device goes on
}

TEST_F(CudaGpuTest, AnIndexOutsideATableIsAnErrorAndNotACrash) {
  const auto device = make_cuda_device();
  Builder b("gather");
  const Val table = b.input("table", {DType::kF32, {5, 8}});
  b.output("y", b.call1("gather", {table, b.input("rows", {DType::kI64, {3}})}));
  const Program program = b.finish();
  testing::Tensors leaves{
      {"table", testing::random_tensor({DType::kF32, {5, 8}}, "table")},
      {"rows", testing::from_doubles(DType::kI64, {3}, std::vector{1.0, 7.0, 2.0})}};
  try {
    testing::run_program(*device, program, leaves);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("[gather] index 7 is outside [0, 5)"));
  }
  leaves["rows"] = testing::from_doubles(DType::kI64, {3}, std::vector{1.0, 4.0, 2.0});
  EXPECT_NO_THROW(testing::run_program(*device, program, leaves));
}

TEST_F(CudaGpuTest, MoreThanTheCardHasIsOutOfMemoryAndLeavesItUsable) {
  const auto device = make_cuda_device();
  EXPECT_THROW(device->allocator().allocate(std::int64_t{1} << 50, {.label = "huge"}), OutOfMemory);
  const auto after = train_some(*device, small_step(), 1);
  EXPECT_FALSE(after.empty());
}

TEST_F(CudaGpuTest, TheSameSeedGivesTheSameBits) {
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    for (Granularity ops : {Granularity::kPrimitive, Granularity::kFused}) {
      RunSpec spec = small_step();
      spec.precision = parse_precision("test", precision);
      spec.ops = ops;
      const auto first = make_cuda_device(), second = make_cuda_device({.guarded = true});
      EXPECT_EQ(train_some(*first, spec, 8), train_some(*second, spec, 8)) << precision;
    }
  }
}

TEST_F(CudaGpuTest, ValuesThatItMakesItselfHaveTheBitsOfTheHosts) {
  for (const char* precision : {"fp32", "bf16", "fp16", "bf16-pure"}) {
    RunSpec spec = small_step();
    spec.precision = parse_precision("test", precision);
    spec.executor = ExecutorKind::kCompiled;  // which keeps narrow copies
    const auto gpu = make_cuda_device(), cpu = make_cpu_device({.threads = 1});
    Store there(*gpu), here(*cpu);
    const Program program = step_program(spec, *gpu);
    there.bind(program);
    here.bind(program);
    initialize_for_timing(there, 7);
    initialize_for_timing(here, 7);
    for (const LeafKind kind : {LeafKind::kParameter, LeafKind::kConstant, LeafKind::kState}) {
      for (const std::string& name : here.names(kind)) {
        EXPECT_EQ(there.get(name).bytes, here.get(name).bytes) << precision << ", " << name;
      }
    }
  }
}

TEST_F(CudaGpuTest, KernelsThatAreLaunchedEarlyWaitForThoseInFront) {
  for (const char* precision : {"fp32", "bf16"}) {
    for (Granularity ops : {Granularity::kPrimitive, Granularity::kFused}) {
      for (ExecutorKind passes : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
        RunSpec spec = small_step();
        spec.precision = parse_precision("test", precision);
        spec.ops = ops;
        spec.attention = ops == Granularity::kFused ? AttentionForm::kFlash : AttentionForm::kNaive;
        spec.executor = passes;
        const auto serial = make_cuda_device();
        const auto dependent = make_cuda_device({.dependent_launch = true});
        EXPECT_EQ(replay_some(*serial, spec, 200), replay_some(*dependent, spec, 200))
            << precision << ' ' << name_of(ops) << ' ' << name_of(passes);
      }
    }
  }
}

TEST_F(CudaGpuTest, ResultsArriveBeforeTheStepEnds) {
  const auto device = make_cuda_device();
  Store store(*device);
  CompiledExecutor executor(store, step_program(small_step(), *device));
  initialize_parameters(store, 1);
  executor.observe({.early = {"loss"}});
  EagerExecutor other(store, step_program(small_step(), *device));
  for (const char* name : {"lr", "step_size"}) {
    executor.set_scalar(name, 0.0);
    other.set_scalar(name, 0.0);
  }
  for (int i = 0; i < 100; ++i) {
    for (const char* name : {"tokens", "targets"}) {
      const Type& type = executor.program().type(executor.program().find_leaf(name));
      const HostTensor value =
          testing::random_tensor(type, fmt::format("{} {}", name, i), 0.0, 100.0);
      executor.set_input(name, value);
      other.set_input(name, value);
    }
    executor.run();
    const double early = executor.scalar("loss");
    other.run();
    EXPECT_EQ(early, other.scalar("loss")) << "step " << i;
  }
  EXPECT_TRUE(executor.is_captured());
}

TEST_F(CudaGpuTest, ItsStateCanBeRead) {
  const auto device = make_cuda_device();
  EXPECT_GT(device->resident_bytes(), 0);
  EXPECT_THAT(device->choices(), HasSubstr("first heuristic"));
  const DeviceFacts facts = device->facts();
  if (facts.sm_clock_mhz) {
    EXPECT_GT(*facts.sm_clock_mhz, 0);
  }
}

TEST_F(CudaGpuTest, ProductsAreTunedBeforeTheFirstStep) {
  const auto device = make_cuda_device({.tune = true});
  EXPECT_EQ(device->choices(), "first heuristic");
  const std::int64_t before = device->allocator().stats().requested_bytes;
  {
    Store store(*device);
    const EagerExecutor executor(store, step_program(small_step(), *device));
    int tuned = 0, all = 0;
    const std::string choices = device->choices();
    ASSERT_EQ(std::sscanf(choices.c_str(), "tuned %d of %d products", &tuned, &all), 2) << choices;
    EXPECT_EQ(tuned, all);
    EXPECT_GT(all, 0);
  }
  EXPECT_EQ(device->allocator().stats().requested_bytes, before) << "scratch memory is given back";
}

TEST_F(CudaGpuTest, AThousandDevicesLeaveMemoryWhereItWas) {
  const auto cycle = [] {
    const auto device = make_cuda_device();
    train_some(*device, small_step(), 1);
  };
  const auto watcher = make_cuda_device();
  // Libraries and the driver load their code at first use, and for the first two devices that are
  // there at a time the driver takes 2 MiB more.
  for (int i = 0; i < 20; ++i) cycle();
  const std::int64_t host = resident_host_bytes(), card = watcher->resident_bytes();
  for (int i = 0; i < kCycles; ++i) cycle();
  EXPECT_LE(watcher->resident_bytes() - card, 0);
  EXPECT_LE(resident_host_bytes() - host, 4 * kMiB);
}

}  // namespace
}  // namespace tracestep
#endif
