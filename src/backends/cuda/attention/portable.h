// The portable family of attention kernels (sm_80 and later: mma.sync, cp.async), for bfloat16,
// float16, and float32 as float16 parts. attention.cpp chooses among the families and calls these
// functions. Widths up to 256, any lengths and strides; always deterministic.
#pragma once

#include "backends/cuda/attention/attention.h"

namespace tracestep::cuda {

// Run attention of 16-bit operands.
cudaError_t portable_forward(const AttentionForward& call, cudaStream_t stream);
cudaError_t portable_backward(const AttentionBackward& call, cudaStream_t stream);

// Run attention of float32 operands. Each is multiplied by a power of two of its head and stored as
// float16: in two parts whose sum carries 22 bits (kSplit3: three products, about float32 accuracy,
// relative to the largest element of a head), or in one (kTF32: TF32's 10 bits of mantissa). Most
// of the workspace is the parts: 4 or 2 bytes an element of q, k, v and, backward, dO.
cudaError_t float32_forward(const AttentionForward& call, cudaStream_t stream);
cudaError_t float32_backward(const AttentionBackward& call, cudaStream_t stream);

// Limits the shared memory of a block to `bytes` (at least 99 KiB), so that tests on a large GPU
// run the configurations of smaller ones; 0: no limit but the device's.
void limit_portable_shared_memory(int bytes);

}  // namespace tracestep::cuda
