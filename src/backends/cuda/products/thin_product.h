// Products of a few rows with a matrix of weights, as in decoding. Each weight is read once, by one
// warp, so the speed is limited by that of memory.
#pragma once

#include "backends/cuda/products/gemm.h"

namespace tracestep::cuda {

// True if `p` is y[m,n] = x[m,k] · w[n,k]ᵀ (+ c, or a bias) with at most 4 rows, and whole words of
// 16 bytes along k.
bool is_thin(const GemmProblem& p);

// Queues a thin product. Sums are float32 in a fixed order and rounded once; `c`, which may be y,
// is the bias for a problem that has one. With dependent launches, the weights are fetched into the
// L2 cache before earlier kernels end.
cudaError_t multiply_thin(const GemmProblem& p, const void* x, const void* weights, const void* c,
                          void* y, const LaunchStream& stream);

}  // namespace tracestep::cuda
