// The null back end: stands for another device, allocates addresses and counts bytes, and computes
// nothing. A program runs through the same executor, allocator and limit as on the real device, so
// its memory is predicted on any machine, at any size, in milliseconds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/device.h"

namespace tracestep {

struct NullOptions {
  DeviceTraits traits = {};       // of the device it stands for
  std::int64_t memory_limit = 0;  // bytes; 0: none
  // True for ops that the imitated device has kernels for. Empty: for all but views, fused nodes
  // and what its record says is always decomposed.
  std::function<bool(const OpDef&)> has_kernel = {};
};

// **Dtypes**: all. Copies do nothing: what is copied out keeps the bytes it had.
std::unique_ptr<Device> make_null_device(NullOptions options = {});

}  // namespace tracestep
