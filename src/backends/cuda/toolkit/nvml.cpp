// NVML's functions and structs are declared here, as its documentation has them: handles are
// pointers, every function returns 0 for success, and a function's structs never change their size.
#include "backends/cuda/toolkit/nvml.h"

#include <dlfcn.h>

#include <array>

#include <fmt/format.h>

namespace tracestep::cuda {
namespace {

constexpr int kSuccess = 0;
constexpr int kInsufficientSize = 7;
constexpr int kClockSm = 1, kClockMemory = 2;
constexpr int kTemperatureGpu = 0;
constexpr int kViolationPower = 0, kViolationThermal = 1;
constexpr unsigned kVersionBytes = 80;

struct Violation {
  unsigned long long reference_us, violation_ns;
};
struct Memory {
  unsigned long long total, free, used;
};

struct Reason {
  unsigned long long bit;
  const char* name;
  bool throttles;  // holds back work that wants to run faster
};
// NVML's bits for why clocks are as they are, their names, and whether they count as throttling.
constexpr std::array<Reason, 9> kReasons = {{{0x001, "idle", false},
                                             {0x002, "application_clocks", false},
                                             {0x004, "sw_power_cap", true},
                                             {0x008, "hw_slowdown", true},
                                             {0x010, "sync_boost", false},
                                             {0x020, "sw_thermal_slowdown", true},
                                             {0x040, "hw_thermal_slowdown", true},
                                             {0x080, "hw_power_brake", true},
                                             {0x100, "display_clocks", false}}};

template <class F>
void find_into(F& out, const Nvml::Find& find, const char* name, const char* older_name = nullptr) {
  void* address = find(name);
  if (address == nullptr && older_name != nullptr) address = find(older_name);
  out = reinterpret_cast<F>(address);
}

void add_reasons(unsigned long long bits, DeviceFacts& out) {
  for (const Reason& reason : kReasons) {
    if ((bits & reason.bit) == 0) continue;
    out.clock_reasons.emplace_back(reason.name);
    if (reason.throttles) out.throttle_reasons.emplace_back(reason.name);
    bits &= ~reason.bit;
  }
  // Bits of a newer driver that the table lacks: reported, but not as throttling.
  if (bits != 0) out.clock_reasons.push_back(fmt::format("other_{:#x}", bits));
}

Nvml open_library() {
  // The number is part of the name; the one without belongs to developers' packages.
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Nvml({}, "libnvidia-ml.so.1 is not on this machine");
  return Nvml([library](const char* name) { return ::dlsym(library, name); });
}

}  // namespace

Nvml::Nvml(const Find& find, std::string problem) : problem_(std::move(problem)) {
  if (!find) {
    if (problem_.empty()) problem_ = "there is no library";
    return;
  }
  find_into(f_.init, find, "nvmlInit_v2");
  find_into(f_.error_string, find, "nvmlErrorString");
  find_into(f_.driver_version, find, "nvmlSystemGetDriverVersion");
  find_into(f_.handle_by_pci, find, "nvmlDeviceGetHandleByPciBusId_v2");
  find_into(f_.clock, find, "nvmlDeviceGetClockInfo");
  find_into(f_.power_usage, find, "nvmlDeviceGetPowerUsage");
  find_into(f_.energy, find, "nvmlDeviceGetTotalEnergyConsumption");
  find_into(f_.power_limit, find, "nvmlDeviceGetEnforcedPowerLimit");
  find_into(f_.temperature, find, "nvmlDeviceGetTemperature");
  find_into(f_.clock_reasons, find, "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons");
  find_into(f_.violation, find, "nvmlDeviceGetViolationStatus");
  find_into(f_.memory, find, "nvmlDeviceGetMemoryInfo");
  find_into(f_.processes, find, "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetComputeRunningProcesses_v2");
  if (f_.init == nullptr) {
    problem_ = "the library has no nvmlInit_v2";
    return;
  }
  const int status = f_.init();
  if (status == kSuccess) return;
  problem_ = fmt::format("nvmlInit_v2: {}", f_.error_string != nullptr
                                                ? std::string(f_.error_string(status))
                                                : fmt::format("error {}", status));
}

const Nvml& Nvml::library() {
  static const Nvml nvml = open_library();  // never shut down: facts may be read until the end
  return nvml;
}

std::string Nvml::driver_version() const {
  char text[kVersionBytes] = "";
  if (!is_there() || f_.driver_version == nullptr) return "";
  return f_.driver_version(text, kVersionBytes) == kSuccess ? text : "";
}

NvmlDevice::NvmlDevice(const Nvml& nvml, const std::string& pci_bus_id) : nvml_(nvml) {
  if (!nvml.is_there() || nvml.f_.handle_by_pci == nullptr) return;
  if (nvml.f_.handle_by_pci(pci_bus_id.c_str(), &handle_) != kSuccess) handle_ = nullptr;
}

std::optional<double> NvmlDevice::energy_j() const {
  const auto energy = nvml_.f_.energy;
  unsigned long long millijoules = 0;
  const bool is_told =
      handle_ != nullptr && energy != nullptr && energy(handle_, &millijoules) == kSuccess;
  return is_told ? std::optional(static_cast<double>(millijoules) * 1e-3) : std::nullopt;
}

DeviceFacts NvmlDevice::facts() const {
  DeviceFacts out;
  if (handle_ == nullptr) return out;
  const Nvml::Functions& f = nvml_.f_;
  unsigned value = 0;
  const auto clock = [&](int which, std::optional<std::int64_t>& fact) {
    if (f.clock != nullptr && f.clock(handle_, which, &value) == kSuccess) fact = value;
  };
  clock(kClockSm, out.sm_clock_mhz);
  clock(kClockMemory, out.memory_clock_mhz);
  const auto watts = [&](auto function, std::optional<double>& fact) {
    if (function != nullptr && function(handle_, &value) == kSuccess) fact = value * 1e-3;
  };
  watts(f.power_usage, out.power_w);
  watts(f.power_limit, out.power_limit_w);
  out.energy_j = energy_j();
  if (f.temperature != nullptr && f.temperature(handle_, kTemperatureGpu, &value) == kSuccess) {
    out.temperature_c = value;
  }
  unsigned long long bits = 0;
  if (f.clock_reasons != nullptr && f.clock_reasons(handle_, &bits) == kSuccess) {
    add_reasons(bits, out);
  }
  const auto held = [&](int policy, std::optional<std::int64_t>& fact) {
    Violation violation{};
    if (f.violation == nullptr || f.violation(handle_, policy, &violation) != kSuccess) return;
    fact = static_cast<std::int64_t>(violation.violation_ns);
  };
  held(kViolationPower, out.power_limited_ns);
  held(kViolationThermal, out.heat_limited_ns);
  Memory memory{};
  if (f.memory != nullptr && f.memory(handle_, &memory) == kSuccess) {
    out.memory_used_bytes = static_cast<std::int64_t>(memory.used);
  }
  // Called with a list of length 0, NVML returns the number of processes.
  unsigned count = 0;
  if (f.processes != nullptr) {
    const int status = f.processes(handle_, &count, nullptr);
    if (status == kSuccess || status == kInsufficientSize) out.process_count = count;
  }
  return out;
}

}  // namespace tracestep::cuda
