// Facts that planning needs about a device, which may not be present.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/enum_words.h"

namespace tracestep {

enum class DeviceKind : std::uint8_t { kCpu, kCuda, kReference };
TRACESTEP_WORDS(DeviceKind, "cpu", "cuda", "reference");

// Facts about a device. Only back ends and planning ask for its kind or name; other code asks what
// the device can do, so that a new device with the same abilities needs no change there.
struct DeviceTraits {
  DeviceKind kind = DeviceKind::kCpu;
  int threads = 1;       // The host threads that share one kernel (cpu).
  bool computes = true;  // false: the device only plans and counts bytes (null)

  // True if the device has memory of its own, and computes without taking a core of the host.
  bool has_own_memory() const { return kind == DeviceKind::kCuda; }
  // True if products are slow when rows do not begin at multiples of 16 bytes.
  bool wants_aligned_rows() const { return kind == DeviceKind::kCuda; }
  // True if work on different lanes can run at the same time; false: lanes take turns.
  bool has_lanes() const { return kind == DeviceKind::kCuda; }
  // True if the device multiplies in special formats: rounded (tf32), float32 by parts, and 16 bits
  // without widening to float32.
  bool has_product_formats() const { return kind == DeviceKind::kCuda; }
  // True if the time of a product grows in steps, because the device computes it in whole waves of
  // tiles.
  bool multiplies_in_waves() const { return kind == DeviceKind::kCuda; }
  // True if devices of this kind exchange data without the host, each driven by its own process.
  // Sums over ranks then have the order of the library that connects them.
  bool has_own_links() const { return kind == DeviceKind::kCuda; }
  // True if the host's threads share a kernel, and its data comes through the host's caches.
  bool shares_kernels_among_threads() const { return kind == DeviceKind::kCpu; }
  // True if all floating numbers are computed as float64, and parameters may be float64.
  bool computes_in_float64() const { return kind == DeviceKind::kReference; }
};

// Returns the traits of a device by its name: "cpu", "cuda:1", "reference", "null" (which plans
// like a CPU). An unknown name gets a CPU's traits; session/devices.h refuses it.
DeviceTraits traits_named(std::string_view device, int threads = 1);

}  // namespace tracestep
