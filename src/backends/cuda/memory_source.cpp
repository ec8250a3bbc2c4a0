#include "backends/cuda/memory_source.h"

#include "backends/cuda/check.h"

namespace tracestep::cuda {

void* DeviceMemory::map(std::int64_t bytes) {
  void* address = nullptr;
  const cudaError_t status = cudaMalloc(&address, static_cast<std::size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check(status, "cudaMalloc");
  return address;
}

void DeviceMemory::unmap(void* address, std::int64_t) {
  cudaFree(address);  // after a lost device there is nobody to tell
}

PinnedMemory::PinnedMemory(std::int64_t bytes) {
  TRACESTEP_CUDA(cudaHostAlloc(&data_, static_cast<std::size_t>(bytes), cudaHostAllocMapped));
}

PinnedMemory::~PinnedMemory() {
  cudaFreeHost(data_);
}

}  // namespace tracestep::cuda
