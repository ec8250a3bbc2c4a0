// The state of a device during a measurement: clocks, power, temperature, and what limited the
// clocks. A fact that the device does not report is left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tracestep {

struct DeviceFacts {
  std::optional<std::int64_t> sm_clock_mhz, memory_clock_mhz;
  std::optional<double> power_w, power_limit_w;
  // Energy that the whole device has used since its driver was loaded; counted every few tens of
  // milliseconds, and only differences between two readings are meaningful.
  std::optional<double> energy_j;
  std::optional<std::int64_t> temperature_c;
  // The driver counts the whole device, other processes included.
  std::optional<std::int64_t> memory_used_bytes;
  std::optional<std::int64_t> process_count;
  // Total time so far during which the power limit or the temperature lowered the clocks; only
  // differences between two readings are meaningful.
  std::optional<std::int64_t> power_limited_ns, heat_limited_ns;
  // All reasons for the current clocks, and those among them that slow work down.
  std::vector<std::string> clock_reasons, throttle_reasons;

  friend bool operator==(const DeviceFacts&, const DeviceFacts&) = default;
  bool empty() const { return *this == DeviceFacts{}; }
};

// Says in words what slowed the device down between two readings; empty: nothing that is known.
std::string throttled_between(const DeviceFacts& before, const DeviceFacts& after);

}  // namespace tracestep
