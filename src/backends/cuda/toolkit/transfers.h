// Copies between the program's memory and the memory that a device's kernels can reach
// (memory_source.h), on one stream, through pinned staging buffers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/cuda/toolkit/pinned_memory.h"

namespace tracestep::cuda {

class Transfers {
 public:
  explicit Transfers(cudaStream_t stream) : stream_(stream) {}
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;
  // Copies to the device. When it returns, the host's memory may be reused, and work that is issued
  // later sees the copied values.
  void in(void* device, const void* host, std::int64_t bytes);
  // Waits for all issued work and copies to the host's memory, which has the bytes on return.
  void out(void* host, const void* device, std::int64_t bytes);

 private:
  // Slots of staging memory that are used in turn.
  class Ring {
   public:
    Ring(std::int64_t bytes_each, int count);
    ~Ring();
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;
    std::int64_t bytes_each() const { return bytes_each_; }
    // Returns the next slot, once the copy that last used it has ended.
    std::byte* take();
    // Marks the slot taken last as being copied on the stream from now on.
    void send(cudaStream_t stream);

   private:
    const std::int64_t bytes_each_;
    PinnedMemory memory_;
    std::vector<cudaEvent_t> free_;  // For each slot, an event after which it may be filled again.
    std::size_t last_ = 0;
  };

  cudaStream_t stream_;
  // Two large slots: one is filled while the other is copied.
  Ring large_{std::int64_t{4} << 20, 2};
  // Small slots for rates and the like, enough for several steps, so that the host need not wait
  // for the update that reads them.
  Ring small_{256, 64};
};

// Copies to the device on a stream of its own, at the same time as the work of another stream; that
// stream's later work waits for the copies.
class SideUploads {
 public:
  explicit SideUploads(cudaStream_t main);
  ~SideUploads();
  SideUploads(const SideUploads&) = delete;
  SideUploads& operator=(const SideUploads&) = delete;
  // Copies as Transfers::in() does, but to memory that no work in progress uses.
  void in(void* device, const void* host, std::int64_t bytes);

 private:
  struct Handles {
    Handles();
    ~Handles();
    Handles(const Handles&) = delete;
    Handles& operator=(const Handles&) = delete;
    cudaStream_t stream = nullptr;
    cudaEvent_t copied = nullptr;
  };
  const cudaStream_t main_;
  const Handles own_;
  Transfers transfers_;
};

}  // namespace tracestep::cuda
