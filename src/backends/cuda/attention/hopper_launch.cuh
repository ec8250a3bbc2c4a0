// Launching the Hopper forward kernel for a call.
#pragma once

#include <algorithm>

#include "backends/cuda/attention/hopper_forward.cuh"
#include "backends/cuda/attention/tensor_map.h"

namespace tracestep::cuda {

// Multiprocessors of the current device.
inline int multiprocessor_count() {
  static const int count = [] {
    int device = 0, n = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device);
    return n;
  }();
  return count;
}

// The tensor map of `data` in boxes of box_rows rows, or of an error the first one.
inline void map_rows(CUtensorMap& map, const AttentionShape& shape, const void* data,
                     const AttentionStrides& strides, int rows, int box_rows, cudaError_t& status) {
  if (status != cudaSuccess) return;
  status = encode_tensor_map({.data = data,
                              .strides = strides,
                              .dtype = shape.dtype,
                              .batch = shape.batch,
                              .heads = shape.heads,
                              .rows = rows,
                              .width = shape.width,
                              .box_rows = box_rows},
                             map);
}

// Allows the kernel its shared memory (once per kernel).
template <class... P>
cudaError_t allow_shared(void (*kernel)(P...), int bytes) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

// `counter`: 4 bytes of scratch for handing out tiles as multiprocessors come free, or null.
template <class Traits>
cudaError_t launch_hopper_forward(const AttentionForward& call, int* counter, cudaStream_t stream) {
  using Layout = ForwardLayout<Traits>;
  const AttentionShape& shape = call.shape;
  ForwardParameters p{};
  cudaError_t status = cudaSuccess;
  map_rows(p.q, shape, call.q, call.q_strides, shape.queries, Layout::kM, status);
  map_rows(p.k, shape, call.k, call.k_strides, shape.keys, Traits::kN, status);
  map_rows(p.v, shape, call.v, call.v_strides, shape.keys, Traits::kN, status);
  map_rows(p.o, shape, call.o, call.o_strides, shape.queries, 64, status);
  if (status != cudaSuccess) return status;
  p.lse = call.lse;
  p.queries = shape.queries;
  p.keys = shape.keys;
  p.heads = shape.heads;
  p.row_tiles = (shape.queries + Layout::kM - 1) / Layout::kM;
  p.tiles = p.row_tiles * shape.heads * shape.batch;
  p.scale_log2 = shape.scale * 1.44269504F;
  const int blocks = std::min(p.tiles, multiprocessor_count());
  if (counter != nullptr && p.tiles > blocks) {
    status = cudaMemsetAsync(counter, 0, sizeof(int), stream);
    if (status != cudaSuccess) return status;
    p.counter = counter;
  }
  auto* kernel = hopper_attention_forward_kernel<Traits>;
  static const cudaError_t allowed = allow_shared(kernel, Layout::kBytes);
  if (allowed != cudaSuccess) return allowed;
  kernel<<<static_cast<unsigned>(blocks), Layout::kThreads, Layout::kBytes, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace tracestep::cuda
