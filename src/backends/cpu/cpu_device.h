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
  int threads = 0;                // The number of threads; 0: every core that this process may use.
  bool guarded = false;           // True: use the allocator that finds stray reads and writes.
  std::int64_t memory_limit = 0;  // The limit on live requested bytes; 0: none.
  // Lent memory for leaves by name, which must outlive the device; nullptr: none.
  const LentMemory* lent = nullptr;
  // Adds kernels of ops from outside this back end, or replaces its own.
  std::function<void(KernelTable& table)> add_kernels = {};
};

// Makes a CPU device. Throws Error{kUsage} if `threads` is negative, and Error{kFailed} if that
// many cannot be started. Kernels get the number of threads from the stream, so devices may have
// different numbers.
std::unique_ptr<Device> make_cpu_device(const CpuOptions& options = {});

}  // namespace tracestep
