// The null back end stands for another device: it allocates addresses, counts bytes, and computes
// nothing. A program runs through the same executor, allocator and limit as on the real device, so
// its memory is predicted on any machine, at any size, in milliseconds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/device.h"

namespace tracestep {

struct NullOptions {
  DeviceTraits traits = {};       // The traits of the device for which it stands.
  std::int64_t memory_limit = 0;  // The limit in bytes; 0: none.
  // Whether the imitated device has a kernel for an op. Empty: it has one for all but views, fused
  // nodes and ops that are always decomposed.
  std::function<bool(const OpDef&)> has_kernel = {};
};

// Makes the device. **Dtypes**: all. Copies do nothing: the target on the host keeps its bytes.
std::unique_ptr<Device> make_null_device(NullOptions options = {});

}  // namespace tracestep
