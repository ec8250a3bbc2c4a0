#include "capi/step/devices.h"

#include <charconv>
#include <optional>

#include "backends/cpu/cpu_device.h"
#include "backends/reference/reference_device.h"
#include "base/cores.h"
#include "base/env.h"
#include "base/error.h"
#include "run/memory_limit.h"
#include "session/gpu_options.h"
#ifdef TRACESTEP_WITH_CUDA
#include "backends/comm/nccl/nccl_group.h"
#include "backends/cuda/cuda_device.h"
#endif

namespace tracestep::capi {
namespace {

OwnKernels& own_kernels() {
  static OwnKernels all;
  return all;
}

// Returns the index of a GPU: "cuda:1" is 1, "cuda" 0; nullopt for "cpu".
std::optional<int> gpu_of(std::string_view device) {
  if (!device.starts_with("cuda")) return std::nullopt;
  const std::size_t colon = device.find(':');
  int index = 0;
  if (colon != device.npos)
    std::from_chars(device.data() + colon + 1, device.data() + device.size(), index);
  return index;
}

#ifdef TRACESTEP_WITH_CUDA
std::unique_ptr<Device> make_gpu(const RunSpec& run, const LentMemory& lent, int index) {
  auto options = gpu_options<CudaOptions>(run, index);
  options.lent = &lent;
  options.add_kernels = own_kernels().gpu;
  return make_cuda_device(options);
}
#else
std::unique_ptr<Device> make_gpu(const RunSpec& run, const LentMemory&, int) {
  throw Error(ErrorCode::kDevice, "device",
              fmt::format("{}: this build has no CUDA back end", run.place.device), "use cpu");
}
#endif

}  // namespace

void use_kernels(OwnKernels kernels) {
  own_kernels() = std::move(kernels);
}

std::unique_ptr<Device> make_session_device(const RunSpec& run, const LentMemory& lent) {
  const std::string& name = run.place.device;
  const std::int64_t limit = limit_in_bytes(run.place);
  if (const auto gpu = gpu_of(name)) return make_gpu(run, lent, *gpu);
  if (name == "cpu") {
    return make_cpu_device({.threads = run.place.threads > 0
                                           ? run.place.threads
                                           : env::threads().value_or(allowed_cores()),
                            .guarded = env::guarded_allocator(),
                            .memory_limit = limit,
                            .lent = &lent,
                            .add_kernels = own_kernels().cpu});
  }
  if (name == "reference") {
    return make_reference_device(
        {.guarded = env::guarded_allocator(), .memory_limit = limit, .lent = &lent});
  }
  fail_usage("device"_field, "{} runs no steps here; cpu, reference and cuda:N do", name);
}

#ifdef TRACESTEP_WITH_CUDA
std::unique_ptr<Communicator> connected_by_nccl(Processes& processes, Device& device) {
  return make_nccl_group(processes, [&device](int lane) { return native_stream_of(device, lane); });
}
struct OnDevice::Gpu {
  explicit Gpu(int index) : current(index) {}
  CurrentGpu current;
};
OnDevice::OnDevice(const std::string& device) {
  if (const auto gpu = gpu_of(device)) gpu_ = std::make_unique<Gpu>(*gpu);
}
void begin_behind_stream(Device& device, void* stream) {
  if (device.is_asynchronous()) begin_behind(device, stream);
}
void let_stream_wait(Device& device, void* stream) {
  if (device.is_asynchronous()) let_wait(device, stream);
}
#else
std::unique_ptr<Communicator> connected_by_nccl(Processes&, Device& device) {
  fail_usage("ranks", "nothing connects {} in this build", device.name());
}
struct OnDevice::Gpu {};
OnDevice::OnDevice(const std::string&) {}
void begin_behind_stream(Device&, void*) {}
void let_stream_wait(Device&, void*) {}
#endif
OnDevice::~OnDevice() = default;

}  // namespace tracestep::capi
