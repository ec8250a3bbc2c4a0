// Facts that planning needs about a device, which may not be present.
#pragma once

#include <cstdint>
#include <string_view>

namespace tracestep {

enum class DeviceKind : std::uint8_t { kCpu, kCuda, kReference };
std::string_view name_of(DeviceKind kind);

// Only back ends and planning ask for the kind or the name of a device; everybody else asks what it
// can do, so that another device of that ability needs no change there.
struct DeviceTraits {
  DeviceKind kind = DeviceKind::kCpu;
  int threads = 1;       // host threads that share one kernel (cpu)
  bool computes = true;  // false: the device only plans and counts bytes (null)

  // True if the device's memory is not the host's, and its arithmetic takes no core of the host.
  bool has_own_memory() const { return kind == DeviceKind::kCuda; }
  // True if products are slow where rows do not begin at multiples of 16 bytes.
  bool wants_aligned_rows() const { return kind == DeviceKind::kCuda; }
  // True if work on one lane runs beside work on another; else lanes take turns.
  bool has_lanes() const { return kind == DeviceKind::kCuda; }
  // True if the device multiplies in formats of its own: rounded (tf32), float32 by parts, 16 bits
  // without a detour over float32.
  bool has_product_formats() const { return kind == DeviceKind::kCuda; }
  // True if the time of a product grows in steps, by whole waves of tiles.
  bool multiplies_in_waves() const { return kind == DeviceKind::kCuda; }
  // True if such devices exchange data without the host, each driven by a process of its own; sums
  // over ranks then have an order of their own.
  bool has_own_links() const { return kind == DeviceKind::kCuda; }
  // True if kernels are cut into parts for the host's threads, and read through its caches.
  bool shares_kernels_among_threads() const { return kind == DeviceKind::kCpu; }
  // True if all floating numbers are float64 there, and steps may have float64 parameters.
  bool computes_in_float64() const { return kind == DeviceKind::kReference; }
};

// Traits of a device by its name: "cpu", "cuda:1", "reference", "null" (which plans as a CPU does).
// A name that nobody has is taken for a CPU's; session/devices.h refuses it.
DeviceTraits traits_named(std::string_view device, int threads = 1);

}  // namespace tracestep
