#include "backends/cuda/fused.h"

#include <fmt/format.h>

#include "backends/cuda/check.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/nvrtc.h"
#include "backends/cuda/stream.h"

namespace tracestep::cuda {
namespace {

std::vector<FusedOperand> operands_of(const std::vector<OperandSpec>& specs) {
  std::vector<FusedOperand> out;
  for (const OperandSpec& x : specs) {  // a load asks for 16 bytes at most
    out.push_back({x.strides, static_cast<int>(std::min<std::int64_t>(x.alignment, 16))});
  }
  return out;
}

class Fused final : public PreparedKernel {
 public:
  explicit Fused(FusedKernels::Prepared prepared) : prepared_(std::move(prepared)) {}

  void launch(const LaunchOperands& operands, const LaunchContext& context) override {
    pointers_.clear();
    for (std::size_t i : prepared_.operands) pointers_.push_back(operands.inputs[i]);
    pointers_.insert(pointers_.end(), operands.outputs.begin(), operands.outputs.end());
    check(prepared_.kernel->launch(pointers_, stream_of(context).handle), "fused");
  }

 private:
  const FusedKernels::Prepared prepared_;
  std::vector<void*> pointers_;
};

std::unique_ptr<PreparedKernel> prepare_fused(KernelSpec spec, const LaunchContext& context) {
  return std::make_unique<Fused>(stream_of(context).fused->prepare(
      spec.attrs.region("body"), operands_of(spec.inputs), operands_of(spec.outputs)));
}

}  // namespace

FusedKernel::FusedKernel(const std::string& binary, unsigned blocks, unsigned threads)
    : blocks_(blocks), threads_(threads) {
  TRACESTEP_CUDA(
      cudaLibraryLoadData(&library_, binary.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  cudaFuncAttributes attributes{};  // this loads the code, which must not happen in a capture
  cudaError_t status = cudaLibraryGetKernel(&kernel_, library_, kFusedKernelName);
  if (status == cudaSuccess) {
    status = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel_));
  }
  if (status == cudaSuccess) return;
  cudaLibraryUnload(library_);
  check(status, "loading a fused kernel");
}

FusedKernel::~FusedKernel() {
  cudaLibraryUnload(library_);
}

cudaError_t FusedKernel::launch(const std::vector<void*>& pointers, cudaStream_t stream) const {
  std::vector<void*> parameters;
  parameters.reserve(pointers.size());
  for (void* const& pointer : pointers) parameters.push_back(const_cast<void**>(&pointer));
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel_), dim3(blocks_), dim3(threads_),
                          parameters.data(), 0, stream);
}

FusedKernels::FusedKernels(int compute_capability, const std::string& cache_folder)
    : compute_capability_(compute_capability),
      binaries_(KernelCache(cache_folder)),
      problem_(nvrtc().problem) {
  if (problem_.empty() && !nvrtc().knows(compute_capability)) {
    problem_ = fmt::format("{} has no code for compute capability {}.{}", nvrtc_name(),
                           compute_capability / 10, compute_capability % 10);
  }
}

FusedKernels::Prepared FusedKernels::prepare(const Program& body,
                                             const std::vector<FusedOperand>& operands,
                                             const std::vector<FusedOperand>& results) {
  const auto walk = find_walk(body);
  if (!walk) fail_usage("fused", "the body is no single walk; decompose it");
  const FusedText text = write_fused_kernel(*walk, operands, results);
  return {kernel_of(text), text.operands};
}

std::shared_ptr<const FusedKernel> FusedKernels::kernel_of(const FusedText& text) {
  const std::string whole = with_device_text(text.kernel);
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const FusedKernel>& kernel = kernels_[whole];
  if (kernel != nullptr) return kernel;
  const std::string key = fmt::format("sm_{} {}\n{}", compute_capability_, nvrtc_name(), whole);
  const std::string binary =
      binaries_.get(key, [&] { return nvrtc().compiled(whole, compute_capability_); });
  kernel = std::make_shared<const FusedKernel>(binary, text.blocks, text.threads);
  return kernel;
}

void add_fused_kernels(KernelTable& table) {
  table.add_planned("fused", prepare_fused);
}

}  // namespace tracestep::cuda
