#include "backends/cuda/toolkit/memory_source.h"

#include "backends/cuda/toolkit/check.h"
#include "backends/cuda/toolkit/waits.h"
#include "runtime/host_wait.h"

namespace tracestep::cuda {

namespace {

constexpr const char* kToFree = "its GPU, to free memory";

// The address, or nullptr where the status says that there is no more memory.
void* address_or_null(cudaError_t status, void* address, const char* call) {
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check(status, call);
  return address;
}

}  // namespace

void* DeviceMemory::map(std::int64_t bytes) {
  gate_.open();
  void* address = nullptr;
  const cudaError_t status = cudaMalloc(&address, static_cast<std::size_t>(bytes));
  return address_or_null(status, address, "cudaMalloc");
}

void DeviceMemory::unmap(void* address, std::int64_t) {
  gate_.open();
  const HostWait wait(kToFree);
  cudaFree(address);  // errors are ignored: the device may be lost
}

void DeviceMemory::set_bytes(void* address, std::uint8_t value, std::int64_t bytes) {
  gate_.open();
  wait_for_device();
  TRACESTEP_CUDA(cudaMemset(address, value, static_cast<std::size_t>(bytes)));
  wait_for_device();
}

void DeviceMemory::copy_in(void* address, const void* host, std::int64_t bytes) {
  gate_.open();
  wait_for_device();
  TRACESTEP_CUDA(cudaMemcpy(address, host, static_cast<std::size_t>(bytes), cudaMemcpyDefault));
  wait_for_device();  // from pageable memory it may still be on its way
}

void DeviceMemory::copy_out(void* host, const void* address, std::int64_t bytes) {
  gate_.open();
  wait_for_device();
  TRACESTEP_CUDA(cudaMemcpy(host, address, static_cast<std::size_t>(bytes), cudaMemcpyDefault));
}

void* HostMemory::map(std::int64_t bytes) {
  gate_.open();
  void* address = nullptr;
  const cudaError_t status =
      cudaHostAlloc(&address, static_cast<std::size_t>(bytes), cudaHostAllocMapped);
  return address_or_null(status, address, "cudaHostAlloc");
}

void HostMemory::unmap(void* address, std::int64_t) {
  gate_.open();
  const HostWait wait(kToFree);
  cudaDeviceSynchronize();  // kernels may still write to it; unlike cudaFree, cudaFreeHost need not
                            // wait
  cudaFreeHost(address);    // errors are ignored: the device may be lost
}

}  // namespace tracestep::cuda
