// Device memory by plain allocations of the driver.
#pragma once

#include "backends/cuda/gate.h"
#include "runtime/allocator.h"

namespace tracestep::cuda {

// Opens the gate before it calls the driver, which may wait for all work of the device.
class DeviceMemory final : public MemorySource {
 public:
  explicit DeviceMemory(Gate& gate) : gate_(gate) {}
  // nullptr when the card has no more.
  void* map(std::int64_t bytes) override;
  void unmap(void* address, std::int64_t bytes) override;
  bool host_accessible() const override { return false; }
  std::int64_t block_alignment() const override { return 256; }
  bool host_copies() const override { return true; }
  void set_bytes(void* address, std::uint8_t value, std::int64_t bytes) override;
  void copy_in(void* address, const void* host, std::int64_t bytes) override;
  void copy_out(void* host, const void* address, std::int64_t bytes) override;

 private:
  Gate& gate_;
};

}  // namespace tracestep::cuda
