// Device memory by plain allocations, and pinned host memory.
#pragma once

#include "runtime/allocator.h"

namespace tracestep::cuda {

class DeviceMemory final : public MemorySource {
 public:
  // nullptr when the card has no more.
  void* map(std::int64_t bytes) override;
  void unmap(void* address, std::int64_t bytes) override;
  bool host_accessible() const override { return false; }
};

// Page-locked host memory; mapped, so that kernels can reach it by the same address.
class PinnedMemory {
 public:
  explicit PinnedMemory(std::int64_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

}  // namespace tracestep::cuda
