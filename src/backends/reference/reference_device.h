// The reference back end: float64 kernels written as in a textbook. It is slow, and the standard
// against which tests compare; programs are converted by the pass `as_float64` first.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/device.h"
#include "runtime/lent_memory.h"

namespace tracestep {

struct ReferenceOptions {
  bool guarded = false;           // True: use the allocator that finds stray writes.
  std::int64_t memory_limit = 0;  // The limit in bytes; 0: none.
  // Memory lent for leaves by their names; it must outlive the device; nullptr: none.
  const LentMemory* lent = nullptr;
};

// Makes the device. **Dtypes**: f64, i64, i32, u8, bool. Every op of ops/ has a kernel, except
// views and fused nodes, which are decomposed.
std::unique_ptr<Device> make_reference_device(const ReferenceOptions& options = {});

}  // namespace tracestep
