#include "backends/cuda/toolkit/memory_source.h"

#include <sys/mman.h>

#include "backends/cuda/toolkit/check.h"
#include "backends/cuda/toolkit/waits.h"
#include "base/host_memory.h"
#include "base/shares.h"
#include "runtime/host_wait.h"

namespace tracestep::cuda {

namespace {

constexpr const char* kToFree = "its GPU, to free memory";

// Returns the address, or nullptr if the status says that there is no more memory.
void* address_or_null(cudaError_t status, void* address, const char* call) {
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check(status, call);
  return address;
}

// The least size of a block of the host's memory whose pages all hardware threads touch.
constexpr std::int64_t kLargeHostBytes = std::int64_t{16} << 20;

// Maps, touches and locks pages that kernels read at the same address; nullptr: out of memory.
void* locked_pages(std::int64_t bytes) {
  // The system ends a process that touches more than there is; the driver refuses.
  if (bytes > available_memory().value_or(0)) return nullptr;
  const auto size = static_cast<std::size_t>(bytes);
  void* const pages =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  ::madvise(pages, size, MADV_HUGEPAGE);  // a wish: small pages do as well
  constexpr std::int64_t kPage = 4096;
  in_shares(bytes / kPage, 2, [pages](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      static_cast<volatile char*>(pages)[i * kPage] = 0;
    }
  });
  void* seen = nullptr;
  if (cudaHostRegister(pages, size, cudaHostRegisterMapped) == cudaSuccess) {
    if (cudaHostGetDevicePointer(&seen, pages, 0) == cudaSuccess && seen == pages) return pages;
    cudaHostUnregister(pages);
  }
  cudaGetLastError();
  ::munmap(pages, size);
  return nullptr;
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
  void* address = bytes >= kLargeHostBytes ? locked_pages(bytes) : nullptr;
  if (address != nullptr) return *locked_here_.insert(address).first;
  const cudaError_t status =
      cudaHostAlloc(&address, static_cast<std::size_t>(bytes), cudaHostAllocMapped);
  return address_or_null(status, address, "cudaHostAlloc");
}

void HostMemory::unmap(void* address, std::int64_t bytes) {
  gate_.open();
  const HostWait wait(kToFree);
  cudaDeviceSynchronize();  // kernels may still write to it; unlike cudaFree, cudaFreeHost need not
                            // wait
  // Errors are ignored: the device may be lost.
  if (locked_here_.erase(address) == 0) {
    cudaFreeHost(address);
    return;
  }
  cudaHostUnregister(address);
  ::munmap(address, static_cast<std::size_t>(bytes));
}

}  // namespace tracestep::cuda
