// A gate in a stream: while it is shut, what is issued behind it only queues up.
#pragma once

#include <cuda_runtime_api.h>

#include "backends/cuda/pinned_memory.h"

namespace tracestep::cuda {

class Gate {
 public:
  explicit Gate(cudaStream_t stream);
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  // Shut; it opens by itself after two seconds, so that a mistake is a slow step and no hang.
  void shut();
  void open();

 private:
  cudaStream_t stream_;
  PinnedMemory word_;  // how many times it was opened
  unsigned times_shut_ = 0;
  bool shut_ = false;
};

}  // namespace tracestep::cuda
