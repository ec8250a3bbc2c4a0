#include "backends/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <cuda_profiler_api.h>

#include "analysis/lanes.h"
#include "backends/cuda/ceilings.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/maps/fused.h"
#include "backends/cuda/maps/random_fill.h"
#include "backends/cuda/products/gemm.h"
#include "backends/cuda/toolkit/check.h"
#include "backends/cuda/toolkit/cublaslt.h"
#include "backends/cuda/toolkit/cupti_tracer.h"
#include "backends/cuda/toolkit/events.h"
#include "backends/cuda/toolkit/gate.h"
#include "backends/cuda/toolkit/graph.h"
#include "backends/cuda/toolkit/mark_overhead.h"
#include "backends/cuda/toolkit/memory_source.h"
#include "backends/cuda/toolkit/nvml.h"
#include "backends/cuda/toolkit/nvrtc.h"
#include "backends/cuda/toolkit/nvtx_ranges.h"
#include "backends/cuda/toolkit/outbox.h"
#include "backends/cuda/toolkit/pinned_memory.h"
#include "backends/cuda/toolkit/transfers.h"
#include "backends/cuda/toolkit/waits.h"
#include "base/indexed.h"
#include "base/log.h"
#include "planning/cuda_plans.h"
#include "planning/needs.h"
#include "runtime/collective_kernels.h"
#include "runtime/energy_counter.h"
#include "runtime/value_filler.h"

namespace tracestep {
namespace {

constexpr int kOldestCapability = 80;
constexpr int kDependentLaunch = 90;  // has programmatic dependent launch

KernelTable make_table() {
  KernelTable table(cuda::kKernelFamilies);
  add_group_kernels(table);
  return table;
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

[[noreturn]] void fail_device(const std::string& message, const std::string& hint = {}) {
  throw Error(ErrorCode::kDevice, "cuda", message, hint);
}

// Makes GPU `index` this thread's current one; throws Error{kDevice} if it cannot be used.
cudaDeviceProp open_device(int index) {
  const CudaProbe probe = probe_cuda();
  if (probe.devices == 0) fail_device(probe.problem, "use " TRACESTEP_OPTION(device) " cpu");
  if (index < 0 || index >= probe.devices) {
    fail_device(fmt::format("there is no cuda:{}; this machine has {} ({})", index, probe.devices,
                            probe.names.front()),
                fmt::format("cuda:0 to cuda:{}", probe.devices - 1));
  }
  cudaDeviceProp properties{};
  TRACESTEP_CUDA(cudaGetDeviceProperties(&properties, index));
  if (properties.major * 10 + properties.minor < kOldestCapability) {
    fail_device(fmt::format("{} has compute capability {}.{}; this build needs 8.0 or later",
                            properties.name, properties.major, properties.minor));
  }
  TRACESTEP_CUDA(cudaSetDevice(index));
  return properties;
}

// Returns the address of a GPU on the bus: "0000:1B:00.0".
std::string pci_address(int index) {
  char text[32] = "";
  TRACESTEP_CUDA(cudaDeviceGetPCIBusId(text, sizeof(text), index));
  return text;
}

class Stream {
 public:
  enum class Priority : std::uint8_t { kLow, kMiddle, kHigh };
  explicit Stream(Priority priority) {
    int low = 0, high = 0;
    TRACESTEP_CUDA(cudaDeviceGetStreamPriorityRange(&low, &high));
    const int levels[] = {low, (low + high) / 2, high};
    TRACESTEP_CUDA(cudaStreamCreateWithPriority(&handle_, cudaStreamNonBlocking,
                                                levels[static_cast<std::size_t>(priority)]));
  }
  ~Stream() {
    cuda::settle(handle_);
    cudaStreamDestroy(handle_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t handle() const { return handle_; }

 private:
  cudaStream_t handle_ = nullptr;
};

// Allows programmatic dependent launches on both streams until it is destroyed, if `allowed`.
class DependentLaunches {
 public:
  DependentLaunches(bool allowed, cuda::CudaStream& lane_0, cuda::CudaStream& lane_1)
      : streams_{&lane_0, &lane_1} {
    set(allowed);
  }
  ~DependentLaunches() { set(false); }
  DependentLaunches(const DependentLaunches&) = delete;
  DependentLaunches& operator=(const DependentLaunches&) = delete;

 private:
  void set(bool dependent) {
    for (cuda::CudaStream* stream : streams_) stream->dependent = dependent;
  }

  cuda::CudaStream* const streams_[2];
};

class CudaDevice final : public Device, public EnergyCounter, public ValueFiller {
 public:
  explicit CudaDevice(const CudaOptions& options)
      : properties_(open_device(options.index)),
        name_(fmt::format("cuda:{}", options.index)),
        gate_(stream_.handle()),
        source_(gate_),
        host_source_(gate_),
        allocator_(make_allocator(options, name_, source_)),
        host_allocator_(make_allocator(options, name_ + ", pinned host memory", host_source_)),
        can_hold_(options.pooled && !options.guarded),
        fault_memory_(sizeof(cuda::Fault)),
        transfers_(stream_.handle()),
        nvml_(cuda::Nvml::library(), pci_address(options.index)),
        table_(make_table()) {
    if (options.lent != nullptr) allocator_ = with_lent(std::move(allocator_), *options.lent);
    traits_.kind = DeviceKind::kCuda;
    allocator_->set_limit(options.memory_limit);
    std::memset(fault_memory_.data(), 0, sizeof(cuda::Fault));
    context_.handle = stream_.handle();
    context_.device = options.index;
    context_.multiprocessors = properties_.multiProcessorCount;
    context_.compute_capability = properties_.major * 10 + properties_.minor;
    allows_dependent_ = options.dependent_launch && context_.compute_capability >= kDependentLaunch;
    context_.fault = static_cast<cuda::Fault*>(fault_memory_.data());
    context_.tf32 = options.tf32;
    gemm_ = std::make_unique<cuda::Gemm>(
        context_, cuda::GemmOptions{options.tf32, options.tune, options.tune_file},
        kCudaGemmWorkspaceBytes, properties_.name);
    context_.gemm = gemm_.get();
    fused_ =
        std::make_unique<cuda::FusedKernels>(context_.compute_capability, options.kernel_cache);
    context_.fused = fused_.get();
    beside_.fill(context_);
    if (fused_->problem().empty()) cuda::add_fused_kernels(table_);
    if (options.add_kernels) options.add_kernels(table_);
  }

  const std::string& name() const override { return name_; }
  const DeviceTraits& traits() const override { return traits_; }
  Allocator& allocator() override { return *allocator_; }
  Allocator& host_allocator() override { return *host_allocator_; }
  bool has_kernel(const OpDef& op) const override {
    if (op.kernel_class == KernelClass::kFused) warn_without_compiler();
    return table_.contains(op.name);
  }
  std::unique_ptr<PreparedKernel> prepare(KernelSpec spec) override {
    return table_.prepare(std::move(spec), context());
  }
  void compile(std::span<const KernelSpec> specs) override {
    if (fused_->problem().empty()) fused_->compile(specs);
  }
  bool supports(DType dtype) const override { return computes_in(traits_.kind, dtype); }
  void copy_in(void* device, const void* host, std::int64_t bytes) override {
    transfers_.in(device, host, bytes);
  }
  void copy_in_beside(void* device, const void* host, std::int64_t bytes) override {
    if (uploads_ == nullptr) uploads_ = std::make_unique<cuda::SideUploads>(stream_.handle());
    uploads_->in(device, host, bytes);
  }
  std::unique_ptr<Outbox> make_outbox(std::span<const std::size_t> bytes) override {
    return std::make_unique<cuda::StreamOutbox>(stream_.handle(), bytes, [this] { throw_fault(); });
  }
  void copy_out(void* host, const void* device, std::int64_t bytes) override {
    transfers_.out(host, device, bytes);
    throw_fault();
  }
  void zero(void* device, std::int64_t bytes) override {
    if (bytes == 0) return;
    TRACESTEP_CUDA(cudaMemsetAsync(device, 0, static_cast<std::size_t>(bytes), stream_.handle()));
  }
  bool fill_uniform(void* data, DType dtype, std::int64_t count,
                    const UniformValues& values) override {
    const CurrentGpu current(context_.device);  // the thread may have made another rank's device
    return cuda::fill_uniform(context_, data, count, dtype, values);
  }
  void synchronize() override {
    cuda::wait_for(stream_.handle());
    for (int lane = 1; lane < kLaneCount; ++lane) cuda::wait_for(handle_beside(lane));
    throw_fault();
  }
  bool is_asynchronous() const override { return true; }
  std::unique_ptr<Marks> make_marks(std::size_t count) override {
    return std::make_unique<cuda::EventMarks>(stream_.handle(), count);
  }
  std::int64_t mark_overhead_ns() override {
    if (mark_overhead_ns_ < 0) {
      mark_overhead_ns_ = cuda::measure_mark_overhead_ns(stream_.handle(), gate_);
    }
    return mark_overhead_ns_;
  }
  void hold() override {
    if (can_hold_) gate_.shut();
  }
  void release() override { gate_.open(); }
  void* stream() override { return &context_; }
  void* stream_beside(int lane) override {
    cuda::CudaStream& beside = beside_[at(lane - 1)];
    beside.handle = handle_beside(lane);
    return &beside;
  }
  std::unique_ptr<LaneEvents> make_lane_events(std::size_t count) override {
    return std::make_unique<cuda::StreamEvents>(
        [this](int lane) { return lane == 0 ? stream_.handle() : handle_beside(lane); }, count);
  }
  std::unique_ptr<CapturedWork> capture(const std::function<void()>& issue) override {
    return cuda::capture_graph(stream_.handle(), [&] {
      const DependentLaunches dependent(allows_dependent_, context_, beside_.front());
      issue();
    });
  }
  Ceilings ceilings(const Precision& precision) override {
    return ceilings_in(precision, measure_cuda_ceilings(*this));
  }
  double roof_tflops(const Precision& precision) override {
    return roof_tflops_in(precision, measure_cuda_ceilings(*this));
  }
  DeviceFacts facts() const override { return nvml_.facts(); }
  std::optional<double> energy_j() const override { return nvml_.energy_j(); }
  std::string choices() const override { return gemm_->describe(); }
  RangeSink* ranges() override { return cuda::nvtx_ranges(); }
  std::unique_ptr<ActivityTracer> make_activity_tracer(std::string& problem) override {
    return cuda::make_cupti_tracer(problem);
  }
  void profile(bool on) override { TRACESTEP_CUDA(on ? cudaProfilerStart() : cudaProfilerStop()); }
  std::int64_t resident_bytes() const override {
    std::size_t free = 0, total = 0;
    TRACESTEP_CUDA(cudaMemGetInfo(&free, &total));
    return static_cast<std::int64_t>(total - free);
  }

 private:
  static std::unique_ptr<Allocator> make_allocator(const CudaOptions& options,
                                                   const std::string& name, MemorySource& source) {
    if (options.guarded) return make_guarded_allocator(name, source);
    return options.pooled ? make_caching_allocator(name, source)
                          : make_plain_allocator(name, source);
  }

  // Returns the stream of lane 1 or 2. Lane 1 of a device in a group has high priority, as its
  // collectives hold few multiprocessors and other ranks wait for them; without a group its updates
  // take what lane 0 leaves. Lane 2 copies to the host, at the same time as copies from the host.
  cudaStream_t handle_beside(int lane) const {
    if (lane == 2) return stream_out_.handle();
    return group() != nullptr ? stream_before_.handle() : stream_behind_.handle();
  }

  // Warns, once, that nothing is fused because there is no compiler to make kernels with.
  void warn_without_compiler() const {
    if (fused_->problem().empty() || has_warned_) return;
    log_warn("nothing is fused: {}", fused_->problem());
    has_warned_ = true;
  }

  // Throws Error for the fault that kernels reported since the last call, if there is one.
  void throw_fault() {
    const cuda::Fault fault = *context_.fault;
    if (fault.kind == 0) return;
    std::memset(fault_memory_.data(), 0, sizeof(cuda::Fault));
    if (static_cast<cuda::FaultKind>(fault.kind) == cuda::FaultKind::kIndex) {
      fail_usage({About::Kind::kOp, fault.op}, "index {} is outside [0, {})", fault.value,
                 fault.bound);
    }
    fail_usage({About::Kind::kOp, fault.op}, "position {} leaves no room; at most {}", fault.value,
               fault.bound);
  }

  const cudaDeviceProp properties_;
  const std::string name_;
  DeviceTraits traits_;
  Stream stream_{Stream::Priority::kMiddle};
  Stream stream_before_{Stream::Priority::kHigh}, stream_behind_{Stream::Priority::kLow};
  Stream stream_out_{Stream::Priority::kLow};
  cuda::Gate gate_;
  cuda::DeviceMemory source_;
  cuda::HostMemory host_source_;
  std::unique_ptr<Allocator> allocator_, host_allocator_;
  const bool can_hold_;  // without a pool every allocation asks the driver, which waits
  cuda::PinnedMemory fault_memory_;
  cuda::Transfers transfers_;
  std::unique_ptr<cuda::SideUploads> uploads_;  // made when first needed
  cuda::NvmlDevice nvml_;
  cuda::CudaStream context_;
  std::array<cuda::CudaStream, kLaneCount - 1> beside_;  // by lane, from lane 1 on
  std::unique_ptr<cuda::Gemm> gemm_;
  std::unique_ptr<cuda::FusedKernels> fused_;
  KernelTable table_;
  bool allows_dependent_ = false;
  std::int64_t mark_overhead_ns_ = -1;  // not measured yet
  mutable bool has_warned_ = false;
};

}  // namespace

CudaProbe probe_cuda() {
  CudaProbe out;
  int driver = 0, runtime = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) out.driver = version_text(driver);
  if (cudaRuntimeGetVersion(&runtime) == cudaSuccess) out.runtime = version_text(runtime);
  out.gemm_library = cuda::cublaslt_name();
  out.compiler = cuda::nvrtc_name();
  out.compiler_problem = cuda::nvrtc().problem;
  const cudaError_t status = cudaGetDeviceCount(&out.devices);
  if (status != cudaSuccess) {
    cudaGetLastError();
    out.devices = 0;
    out.problem = driver == 0 ? "there is no NVIDIA driver" : cudaGetErrorString(status);
    if (status == cudaErrorInsufficientDriver && driver > 0) {
      out.problem = fmt::format(
          "the NVIDIA driver knows CUDA {}, and this build needs {}: a newer driver is wanted",
          out.driver, out.runtime);
    }
    return out;
  }
  if (out.devices == 0) out.problem = "the NVIDIA driver finds no GPU";
  for (int i = 0; i < out.devices; ++i) {
    cudaDeviceProp properties{};
    const bool known = cudaGetDeviceProperties(&properties, i) == cudaSuccess;
    out.names.emplace_back(known ? properties.name : "unknown");
  }
  return out;
}

namespace {

// Makes stream `later` wait for all work that was given to stream `first` before this call.
void order(cudaStream_t first, cudaStream_t later) {
  cudaEvent_t event = nullptr;
  TRACESTEP_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const cudaError_t recorded = cudaEventRecord(event, first);
  const cudaError_t waits =
      recorded == cudaSuccess ? cudaStreamWaitEvent(later, event, 0) : recorded;
  cudaEventDestroy(event);  // the driver keeps it until it is reached
  cuda::check(waits, "cudaStreamWaitEvent");
}

}  // namespace

void begin_behind(Device& device, void* stream) {
  order(static_cast<cudaStream_t>(stream), static_cast<cudaStream_t>(native_stream_of(device)));
}

void let_wait(Device& device, void* stream) {
  order(static_cast<cudaStream_t>(native_stream_of(device)), static_cast<cudaStream_t>(stream));
}

CurrentGpu::CurrentGpu(int index) {
  TRACESTEP_CUDA(cudaGetDevice(&before_));
  TRACESTEP_CUDA(cudaSetDevice(index));
}

CurrentGpu::~CurrentGpu() {
  cudaSetDevice(before_);
}

void* native_stream_of(Device& device, int lane) {
  const void* const stream = lane == 0 ? device.stream() : device.stream_beside(lane);
  return static_cast<const cuda::CudaStream*>(stream)->handle;
}

std::unique_ptr<Device> make_cuda_device(const CudaOptions& options) {
  return std::make_unique<CudaDevice>(options);
}

}  // namespace tracestep
