// Describes a GPU, for the environment of a result and for `doctor`, without starting a device.
#pragma once

#include <cstdint>
#include <string>

namespace tracestep {

struct CudaDeviceInfo {
  std::string name;                // "NVIDIA H200"
  std::string compute_capability;  // "9.0"
  std::string pci_bus_id;          // "0000:1B:00.0"
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
};

// Describes the GPU with this index. All fields are empty if there is none. Never throws.
CudaDeviceInfo cuda_device_info(int index);

// Returns the version of the driver, "580.65.06", from NVML; empty: not known.
std::string nvidia_driver_version();
// Returns why clocks, power and temperature cannot be read; empty: they can.
std::string nvml_problem();

}  // namespace tracestep
