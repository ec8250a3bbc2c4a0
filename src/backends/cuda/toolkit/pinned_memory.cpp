#include "backends/cuda/toolkit/pinned_memory.h"

#include "backends/cuda/toolkit/check.h"

namespace tracestep::cuda {

PinnedMemory::PinnedMemory(std::int64_t bytes) {
  TRACESTEP_CUDA(cudaHostAlloc(&data_, static_cast<std::size_t>(bytes), cudaHostAllocMapped));
}

PinnedMemory::~PinnedMemory() {
  cudaFreeHost(data_);
}

}  // namespace tracestep::cuda
