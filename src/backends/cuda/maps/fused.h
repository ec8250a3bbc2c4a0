// Fused nodes on the GPU: their kernels are generated and compiled when first prepared.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backends/cuda/kernel_launch.h"
#include "codegen/fused_text.h"
#include "codegen/kernel_cache.h"
#include "runtime/kernel.h"

namespace tracestep::cuda {

// The loaded machine code of a kernel.
class FusedKernel {
 public:
  explicit FusedKernel(const std::string& binary);
  ~FusedKernel();
  FusedKernel(const FusedKernel&) = delete;
  FusedKernel& operator=(const FusedKernel&) = delete;

  // Launches the kernel. `pointers`: those of the operands, then of the results. Each call passes
  // its own `blocks` and `threads`, because calls of other sizes may share the kernel's text.
  cudaError_t launch(const std::vector<void*>& pointers, unsigned blocks, unsigned threads,
                     const LaunchStream& stream) const;

 private:
  cudaLibrary_t library_ = nullptr;
  cudaKernel_t kernel_ = nullptr;
};

// The fused kernels of one device, by source text: calls with the same text share a kernel, and
// each launches as many blocks as it needs. (A text whose blocks are all full names no size.)
class FusedKernels {
 public:
  FusedKernels(int compute_capability, const std::string& cache_folder);

  // Returns why nothing can be compiled here; empty if it can.
  const std::string& problem() const { return problem_; }

  // A call of a fused node: its body, and the strides and alignment of its operands.
  struct Call {
    const Program& body;
    std::vector<FusedOperand> operands, results;
    bool in_place = false;  // results may lie where operands do
  };
  // Compiles the kernels that fused nodes among the calls still need, on as many threads as there
  // are cores. Throws what prepare() throws.
  void compile(std::span<const KernelSpec> specs);

  // The kernel of a call, and how to launch it.
  struct Prepared {
    std::shared_ptr<const FusedKernel> kernel;
    std::vector<std::size_t> operands;  // The node's operands that the kernel reads.
    unsigned blocks, threads;
  };
  // Prepares a call, and compiles its kernel unless that was done before. Throws what
  // Nvrtc::compiled() throws, and Error{kUsage} for a body that the pass `fuse` would not make.
  Prepared prepare(const Call& call);

 private:
  void compile(const std::vector<FusedText>& texts);

  const int compute_capability_;
  KernelBinaries binaries_;
  std::string problem_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const FusedKernel>> kernels_;  // Kernels by their text.
};

}  // namespace tracestep::cuda
