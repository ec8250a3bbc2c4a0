// Copies between the program's memory and what a device's kernels reach (memory_source.h), on one
// stream, through pinned staging buffers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/toolkit/pinned_memory.h"

namespace tracestep::cuda {

class Transfers {
 public:
  explicit Transfers(cudaStream_t stream);
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;
  // The host memory may be reused when it returns; the device has it for what is issued next.
  void in(void* device, const void* host, std::int64_t bytes);
  // Waits for all issued work; the host has the bytes when it returns.
  void out(void* host, const void* device, std::int64_t bytes);

 private:
  static constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;
  static constexpr int kPieces = 2;  // one is filled while the other travels

  cudaStream_t stream_;
  PinnedMemory staging_{kPieces * kPieceBytes};
  cudaEvent_t free_[kPieces] = {};  // this piece has been copied and may be refilled
  int next_ = 0;
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
