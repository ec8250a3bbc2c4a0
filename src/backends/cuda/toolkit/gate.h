// A gate in a stream: while it is shut, work issued after it waits in the queue.
#pragma once

#include <cuda_runtime_api.h>

#include "backends/cuda/toolkit/pinned_memory.h"

namespace tracestep::cuda {

class Gate {
 public:
  explicit Gate(cudaStream_t stream);
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  // Shuts it. It opens by itself after two seconds: a mistake causes a slow step, not a hang.
  void shut();
  void open();

 private:
  cudaStream_t stream_;
  PinnedMemory word_;  // how many times it was opened
  unsigned times_shut_ = 0;
  bool shut_ = false;
};

}  // namespace tracestep::cuda
