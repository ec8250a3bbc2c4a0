// A gate in a stream: while it is shut, work that is issued after it waits in the queue.
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
  // Shuts the gate. It opens by itself after two seconds, so that a mistake causes a slow step and
  // not a hang.
  void shut();
  void open();

 private:
  cudaStream_t stream_;
  PinnedMemory word_;  // How often the gate was opened, where the device reads it.
  unsigned times_shut_ = 0;
  bool shut_ = false;
};

}  // namespace tracestep::cuda
