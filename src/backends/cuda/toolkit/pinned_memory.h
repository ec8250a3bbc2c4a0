// Page-locked host memory; mapped, so that kernels can reach it at the same address.
#pragma once

#include <cstdint>

namespace tracestep::cuda {

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
