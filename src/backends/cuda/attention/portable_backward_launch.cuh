// Launches a configuration of the portable backward kernel.
#pragma once

#include "backends/cuda/attention/portable_backward.cuh"

namespace tracestep::cuda::portable {

template <class Traits>
__global__ void __launch_bounds__(Traits::kThreads, Traits::kBlocks)
    portable_attention_backward_kernel(const __grid_constant__ BackwardParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  BackwardWarp<Traits> warp(p, shared_address(memory));
  warp.run();
}

template <class Traits>
cudaError_t launch_backward(const BackwardParams& params, cudaStream_t stream) {
  constexpr int kBytes = BackwardShared<Traits>::kBytes;
  constexpr auto kKernel = portable_attention_backward_kernel<Traits>;
  if (const cudaError_t status = allow_shared<kKernel>(kBytes); status != cudaSuccess) {
    return status;
  }
  const unsigned tiles = static_cast<unsigned>((params.x.rows + Traits::kRows - 1) / Traits::kRows);
  const unsigned blocks = tiles * static_cast<unsigned>(params.batch_heads);
  if (blocks == 0) return cudaSuccess;
  kKernel<<<blocks, Traits::kThreads, kBytes, stream>>>(params);
  return cudaGetLastError();
}

// The configuration of the backward kernel that these arguments of BackwardTraits describe.
template <class E, int parts, int width, int row_blocks, int warps, int passing, int blocks,
          Gradient gradient, int share = 1>
inline constexpr Configuration<BackwardParams> kBackward{
    BackwardShared<BackwardTraits<E, parts, width, row_blocks, warps, passing, blocks, gradient,
                                  share>>::kBytes,
    launch_backward<
        BackwardTraits<E, parts, width, row_blocks, warps, passing, blocks, gradient, share>>};

}  // namespace tracestep::cuda::portable
