// Products of a few rows with a matrix of weights, as decoding has them: nothing is shared, so each
// weight is read once and what counts is that memory is never idle.
#pragma once

#include "backends/cuda/products/gemm.h"

namespace tracestep::cuda {

// True if `p` is y[m,n] = x[m,k] · w[n,k]ᵀ (+ c, or a bias) with at most 4 rows, and whole words of
// 16 bytes along k.
bool is_thin(const GemmProblem& p);

// Queues such a product: float32 sums in a fixed order, rounded once; `c`, which may be y, is the
// bias of a problem that has one. With dependent launches the weights are on their way to the
// second-level cache before the kernels in front end.
cudaError_t multiply_thin(const GemmProblem& p, const void* x, const void* weights, const void* c,
                          void* y, const LaunchStream& stream);

}  // namespace tracestep::cuda
