// Fused nodes on the GPU: their kernels are written and compiled when they are first asked for.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "codegen/fused_text.h"
#include "codegen/kernel_cache.h"
#include "runtime/kernel.h"

namespace tracestep::cuda {

// Machine code that is loaded, and how it is launched.
class FusedKernel {
 public:
  FusedKernel(const std::string& binary, unsigned blocks, unsigned threads);
  ~FusedKernel();
  FusedKernel(const FusedKernel&) = delete;
  FusedKernel& operator=(const FusedKernel&) = delete;

  // `pointers`: of the operands that the kernel reads, then of the results.
  cudaError_t launch(const std::vector<void*>& pointers, cudaStream_t stream) const;

 private:
  cudaLibrary_t library_ = nullptr;
  cudaKernel_t kernel_ = nullptr;
  unsigned blocks_, threads_;
};

// Of one device. Kernels are found by their text: bodies that read alike share one.
class FusedKernels {
 public:
  FusedKernels(int compute_capability, const std::string& cache_folder);

  // Why nothing can be compiled here; empty: it can.
  const std::string& problem() const { return problem_; }

  // A body with operands that lie so, ready to be launched.
  struct Prepared {
    std::shared_ptr<const FusedKernel> kernel;
    std::vector<std::size_t> operands;  // of the node: those that the kernel reads
  };
  // Compiles what has not been compiled yet. Errors as Nvrtc::compiled(), and Error{kUsage} for a
  // body that `fuse` would not have made.
  Prepared prepare(const Program& body, const std::vector<FusedOperand>& operands,
                   const std::vector<FusedOperand>& results);

 private:
  std::shared_ptr<const FusedKernel> kernel_of(const FusedText& text);

  const int compute_capability_;
  const KernelCache cache_;
  std::string problem_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const FusedKernel>> kernels_;  // by text
};

}  // namespace tracestep::cuda
