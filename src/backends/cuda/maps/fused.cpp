#include "backends/cuda/maps/fused.h"

#include <set>
#include <thread>

#include <fmt/format.h>

#include "backends/cuda/kernels.h"
#include "backends/cuda/toolkit/check.h"
#include "backends/cuda/toolkit/nvrtc.h"
#include "backends/cuda/toolkit/stream.h"

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
    check(prepared_.kernel->launch(pointers_, prepared_.blocks, prepared_.threads,
                                   stream_of(context).launch_stream()),
          "fused");
  }

 private:
  const FusedKernels::Prepared prepared_;
  std::vector<void*> pointers_;
};

FusedKernels::Call fused_call(const KernelSpec& spec) {
  return {spec.attrs.region("body"), operands_of(spec.inputs), operands_of(spec.outputs),
          spec.attrs.flag("in_place")};
}

std::unique_ptr<PreparedKernel> prepare_fused(KernelSpec spec, const LaunchContext& context) {
  return std::make_unique<Fused>(stream_of(context).fused->prepare(fused_call(spec)));
}

FusedText text_of(const FusedKernels::Call& call) {
  const auto walk = find_walk(call.body);
  if (!walk) fail_usage("fused", "the body is no single walk; decompose it");
  return write_fused_kernel(*walk, call.operands, call.results, call.in_place);
}

}  // namespace

FusedKernel::FusedKernel(const std::string& binary) {
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

cudaError_t FusedKernel::launch(const std::vector<void*>& pointers, unsigned blocks,
                                unsigned threads, const LaunchStream& stream) const {
  std::vector<void*> parameters;
  parameters.reserve(pointers.size());
  for (void* const& pointer : pointers) parameters.push_back(const_cast<void**>(&pointer));
  constexpr bool kWaits = true;  // every generated kernel begins with wait_for_predecessors()
  return launch_kernel(stream, {.blocks = dim3(blocks), .threads = dim3(threads)},
                       reinterpret_cast<const void*>(kernel_), parameters.data(), kWaits);
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

void FusedKernels::compile(std::span<const KernelSpec> specs) {
  std::vector<FusedText> texts;
  for (const KernelSpec& spec : specs) {
    if (spec.op->kernel_class == KernelClass::kFused) texts.push_back(text_of(fused_call(spec)));
  }
  compile(texts);
}

void FusedKernels::compile(const std::vector<FusedText>& texts) {
  const std::lock_guard lock(mutex_);
  std::set<std::string> missing;
  for (const FusedText& text : texts) {
    std::string whole = with_device_text(text.kernel);
    if (!kernels_.contains(whole)) missing.insert(std::move(whole));
  }
  const std::vector<std::string> wholes(missing.begin(), missing.end());
  std::vector<std::string> keys;
  for (const std::string& whole : wholes) {
    keys.push_back(fmt::format("sm_{} {}\n{}", compute_capability_, nvrtc_name(), whole));
  }
  const std::vector<std::string> binaries = binaries_.get_all(
      keys, [&](std::size_t i) { return nvrtc().compiled(wholes[i], compute_capability_); },
      std::thread::hardware_concurrency());
  for (std::size_t i = 0; i < wholes.size(); ++i) {
    kernels_[wholes[i]] = std::make_shared<const FusedKernel>(binaries[i]);
  }
}

FusedKernels::Prepared FusedKernels::prepare(const Call& call) {
  FusedText text = text_of(call);
  compile({text});
  const std::lock_guard lock(mutex_);
  return {kernels_.at(with_device_text(text.kernel)), std::move(text.operands), text.blocks,
          text.threads};
}

void add_fused_kernels(KernelTable& table) {
  table.add_planned("fused", prepare_fused);
}

}  // namespace tracestep::cuda
