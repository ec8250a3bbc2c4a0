#include "backends/cuda/toolkit/device_info.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "backends/cuda/toolkit/nvml.h"

namespace tracestep {

CudaDeviceInfo cuda_device_info(int index) {
  CudaDeviceInfo out;
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) {
    cudaGetLastError();  // clear the error: it is handled here
    return out;
  }
  char address[32] = "";
  if (cudaDeviceGetPCIBusId(address, sizeof address, index) == cudaSuccess) {
    out.pci_bus_id = address;
  }
  out.name = properties.name;
  out.compute_capability = fmt::format("{}.{}", properties.major, properties.minor);
  out.multiprocessors = properties.multiProcessorCount;
  out.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  return out;
}

std::string nvidia_driver_version() {
  return cuda::Nvml::library().driver_version();
}

std::string nvml_problem() {
  return cuda::Nvml::library().problem();
}

}  // namespace tracestep
