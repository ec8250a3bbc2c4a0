// The state a device was in when a number was measured: clocks, power, heat, and what held the
// clocks back. Anything a device cannot tell is left out; a device without such counters tells
// nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tracestep {

struct DeviceFacts {
  std::optional<std::int64_t> sm_clock_mhz, memory_clock_mhz;
  std::optional<double> power_w, power_limit_w;
  std::optional<std::int64_t> temperature_c;
  // Of the whole device, as the driver counts it, with what other processes hold.
  std::optional<std::int64_t> memory_used_bytes;
  std::optional<std::int64_t> process_count;
  // How long the power limit and the temperature have held the clocks down so far, in total: only
  // differences mean something.
  std::optional<std::int64_t> power_limited_ns, heat_limited_ns;
  // Every reason given for the clocks of this moment, and those of them that slow work down.
  std::vector<std::string> clock_reasons, throttle_reasons;

  friend bool operator==(const DeviceFacts&, const DeviceFacts&) = default;
  bool empty() const { return *this == DeviceFacts{}; }
};

// What slowed the device down between two readings, in words; empty when nothing is known to have.
std::string throttled_between(const DeviceFacts& before, const DeviceFacts& after);

}  // namespace tracestep
