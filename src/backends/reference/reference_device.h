// The reference back end: float64 kernels as a textbook would write them. Slow, and the oracle of
// every test; programs are converted with the pass `as_float64` first.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/device.h"
#include "runtime/lent_memory.h"

namespace tracestep {

struct ReferenceOptions {
  bool guarded = false;              // the allocator that finds stray writes
  std::int64_t memory_limit = 0;     // bytes; 0: none
  const LentMemory* lent = nullptr;  // for leaves by name; must outlive the device
};

// **Dtypes**: f64, i64, i32, u8, bool. Every op of ops/ has a kernel, except views and fused nodes,
// which are decomposed.
std::unique_ptr<Device> make_reference_device(const ReferenceOptions& options = {});

}  // namespace tracestep
