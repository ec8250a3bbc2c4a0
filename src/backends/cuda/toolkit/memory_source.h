// Memory that a device's kernels can reach, in plain allocations from the driver: the device's own,
// and page-locked memory of the host, which has the same address on both sides.
#pragma once

#include <set>

#include "backends/cuda/toolkit/gate.h"
#include "runtime/allocator.h"

namespace tracestep::cuda {

// The device's own memory. Opens the gate before calls of the driver, which may wait for all work.
class DeviceMemory : public MemorySource {
 public:
  explicit DeviceMemory(Gate& gate) : gate_(gate) {}
  // Allocates device memory; nullptr when there is no more.
  void* map(std::int64_t bytes) override;
  void unmap(void* address, std::int64_t bytes) override;
  bool host_accessible() const override { return false; }
  std::int64_t block_alignment() const override { return 256; }
  bool host_copies() const override { return true; }
  void set_bytes(void* address, std::uint8_t value, std::int64_t bytes) override;
  void copy_in(void* address, const void* host, std::int64_t bytes) override;
  void copy_out(void* host, const void* address, std::int64_t bytes) override;

 protected:
  Gate& gate_;
};

class HostMemory final : public DeviceMemory {
 public:
  using DeviceMemory::DeviceMemory;
  bool is_of_host() const override { return true; }
  // Allocates page-locked memory; nullptr when the host has no more of it. Large blocks are pages
  // that all hardware threads touch and that are locked then: the driver's own call touches them on
  // one thread, about a second for each GiB.
  void* map(std::int64_t bytes) override;
  void unmap(void* address, std::int64_t bytes) override;

 private:
  std::set<void*> locked_here_;  // the large blocks
};

}  // namespace tracestep::cuda
