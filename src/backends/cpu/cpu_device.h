// The CPU device: float32 arithmetic on float32, bfloat16 and float16 storage, integers for
// positions and indices, a team of threads (team.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/device.h"
#include "runtime/kernel.h"
#include "runtime/lent_memory.h"

namespace tracestep {

struct CpuOptions {
  int threads = 0;                   // 0: every core this process may use
  bool guarded = false;              // the allocator that finds stray reads and writes
  std::int64_t memory_limit = 0;     // of live requested bytes; 0: none
  const LentMemory* lent = nullptr;  // for leaves by name; must outlive the device
  // Adds kernels of ops from outside this back end, or replaces its own.
  std::function<void(KernelTable& table)> add_kernels = {};
};

// Throws Error{kUsage} when `threads` is negative and Error{kFailed} when that many cannot be
// started. Kernels get the thread count from the stream, so it may differ between devices.
std::unique_ptr<Device> make_cpu_device(const CpuOptions& options = {});

}  // namespace tracestep
