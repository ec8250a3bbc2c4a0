// Launching kernels on the stream of a call.
#pragma once

#include <algorithm>

#include "backends/cuda/predecessors.cuh"
#include "backends/cuda/toolkit/check.h"
#include "backends/cuda/toolkit/stream.h"

namespace tracestep::cuda {

struct Grid {
  unsigned blocks = 1;   // blockIdx.x
  unsigned threads = 1;  // threadIdx.x
  unsigned shared_bytes = 0;
  unsigned blocks_y = 1, blocks_z = 1;
  unsigned cluster = 1;  // neighbouring blocks along x that share a cluster
};

// Launches `kernel`, or does nothing if a dimension is 0. Throws DeviceError with the op's name.
// More than 48 KiB of dynamic shared memory must have been allowed (cudaFuncSetAttribute) before.
template <class... P, class... Arguments>
void launch(const KernelCall& call, const Grid& grid, void (*kernel)(P...),
            const Arguments&... arguments) {
  if (grid.blocks == 0 || grid.blocks_y == 0 || grid.blocks_z == 0) return;
  const LaunchSize size{.blocks = dim3(grid.blocks, grid.blocks_y, grid.blocks_z),
                        .threads = dim3(grid.threads),
                        .shared_bytes = grid.shared_bytes,
                        .cluster = grid.cluster};
  const cudaError_t status =
      launch_kernel(stream_of(call).launch_stream(), size, kernel, arguments...);
  if (status != cudaSuccess) [[unlikely]]
    fail_launch(call, status);
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Returns how many blocks to launch for `work` items if one does `per_block` at a time: one at
// least, and at most `waves` times what the device holds; kernels loop over the remaining items.
inline unsigned blocks_for(const KernelCall& call, std::int64_t work, std::int64_t per_block,
                           int resident_per_multiprocessor, int waves = 4) {
  const std::int64_t most =
      std::int64_t{stream_of(call).multiprocessors} * resident_per_multiprocessor * waves;
  return static_cast<unsigned>(std::clamp<std::int64_t>(ceil_div(work, per_block), 1, most));
}

}  // namespace tracestep::cuda
