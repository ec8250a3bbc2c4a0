// NVML, the driver's management library: clocks, power, temperature, and why clocks are low. It is
// found at run time; if the library, a function or a counter is missing, its facts are left out.
#pragma once

#include <functional>
#include <string>

#include "runtime/device_facts.h"

namespace tracestep::cuda {

// NVML's functions. library() finds them once per process; tests pass functions of their own.
class Nvml {
 public:
  // Returns the address of the function with this name, or nullptr.
  using Find = std::function<void*(const char* name)>;

  // An empty `find` means that there is no library, for the reason `problem`.
  explicit Nvml(const Find& find, std::string problem = {});
  static const Nvml& library();

  bool is_there() const { return problem_.empty(); }
  // Returns why the library is missing; empty if it is not.
  const std::string& problem() const { return problem_; }
  // Returns the driver's version, "580.65.06"; empty: not known.
  std::string driver_version() const;

 private:
  friend class NvmlDevice;
  struct Functions {
    int (*init)() = nullptr;
    const char* (*error_string)(int) = nullptr;
    int (*driver_version)(char*, unsigned) = nullptr;
    int (*handle_by_pci)(const char*, void**) = nullptr;
    int (*clock)(void*, int, unsigned*) = nullptr;
    int (*power_usage)(void*, unsigned*) = nullptr;
    int (*energy)(void*, unsigned long long*) = nullptr;
    int (*power_limit)(void*, unsigned*) = nullptr;
    int (*temperature)(void*, int, unsigned*) = nullptr;
    int (*clock_reasons)(void*, unsigned long long*) = nullptr;
    int (*violation)(void*, int, void*) = nullptr;
    int (*memory)(void*, void*) = nullptr;
    int (*processes)(void*, unsigned*, void*) = nullptr;
  };

  Functions f_;
  std::string problem_;
};

// A GPU in NVML, which is found by its address on the PCI bus, because CUDA only numbers the
// visible devices and NVML numbers all.
class NvmlDevice {
 public:
  // Finds the device by `pci_bus_id` as CUDA writes it: "0000:1B:00.0". Without the library or the
  // device every fact is left out.
  NvmlDevice(const Nvml& nvml, const std::string& pci_bus_id);

  // Reads all facts now; takes the driver a few hundred microseconds to some milliseconds.
  DeviceFacts facts() const;
  // Reads DeviceFacts::energy_j alone, which takes some milliseconds.
  std::optional<double> energy_j() const;

 private:
  const Nvml& nvml_;
  void* handle_ = nullptr;  // nullptr: the device was not found.
};

}  // namespace tracestep::cuda
