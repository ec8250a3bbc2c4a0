// Copies between the program's memory and what a device's kernels reach (memory_source.h), on one
// stream, through pinned staging buffers.
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
  // The host memory may be reused when it returns; the device has it for what is issued next.
  void in(void* device, const void* host, std::int64_t bytes);
  // Waits for all issued work; the host has the bytes when it returns.
  void out(void* host, const void* device, std::int64_t bytes);

 private:
  // Places in staging memory, taken in turns.
  class Ring {
   public:
    Ring(std::int64_t bytes_each, int count);
    ~Ring();
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;
    std::int64_t bytes_each() const { return bytes_each_; }
    // The next place, when what was copied from it last has arrived.
    std::byte* take();
    // The stream copies the last place's values from now on.
    void send(cudaStream_t stream);

   private:
    const std::int64_t bytes_each_;
    PinnedMemory memory_;
    std::vector<cudaEvent_t> free_;  // the place has been copied and may be refilled
    std::size_t last_ = 0;
  };

  cudaStream_t stream_;
  Ring large_{std::int64_t{4} << 20, 2};  // one is filled while the other travels
  // Rates and the like, of several steps: the host need not wait for the update that reads them.
  Ring small_{256, 64};
};

// Copies to the device on a stream of their own, beside the work of another one, whose later work
// waits for them.
class SideUploads {
 public:
  explicit SideUploads(cudaStream_t main);
  ~SideUploads();
  SideUploads(const SideUploads&) = delete;
  SideUploads& operator=(const SideUploads&) = delete;
  // As Transfers::in(), to memory that no work under way uses.
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
