#include "backends/cuda/memory_source.h"

#include "backends/cuda/check.h"

namespace tracestep::cuda {

void* DeviceMemory::map(std::int64_t bytes) {
  gate_.open();
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
  gate_.open();
  cudaFree(address);  // errors are ignored: the device may be lost
}

void DeviceMemory::set_bytes(void* address, std::uint8_t value, std::int64_t bytes) {
  gate_.open();
  TRACESTEP_CUDA(cudaDeviceSynchronize());
  TRACESTEP_CUDA(cudaMemset(address, value, static_cast<std::size_t>(bytes)));
  TRACESTEP_CUDA(cudaDeviceSynchronize());
}

void DeviceMemory::copy_in(void* address, const void* host, std::int64_t bytes) {
  gate_.open();
  TRACESTEP_CUDA(cudaDeviceSynchronize());
  TRACESTEP_CUDA(
      cudaMemcpy(address, host, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice));
  TRACESTEP_CUDA(cudaDeviceSynchronize());  // from pageable memory it may still be on its way
}

void DeviceMemory::copy_out(void* host, const void* address, std::int64_t bytes) {
  gate_.open();
  TRACESTEP_CUDA(cudaDeviceSynchronize());
  TRACESTEP_CUDA(
      cudaMemcpy(host, address, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost));
}

}  // namespace tracestep::cuda
