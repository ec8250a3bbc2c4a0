// What planning needs to know about a device that may not be present.
#pragma once

#include <cstdint>
#include <string_view>

namespace tracestep {

enum class DeviceKind : std::uint8_t { kCpu, kCuda, kReference };
std::string_view name_of(DeviceKind kind);

struct DeviceTraits {
  DeviceKind kind = DeviceKind::kCpu;
  int threads = 1;  // host threads that share one kernel (cpu)

  // Whether its memory is another than the host's.
  bool has_own_memory() const { return kind == DeviceKind::kCuda; }
  // Whether products are slow where rows do not begin at multiples of 16 bytes.
  bool wants_aligned_rows() const { return kind == DeviceKind::kCuda; }
};

}  // namespace tracestep
