// Products of float32 matrices on the tensor cores of Hopper, as accurate as the float32 units are.
// Each operand becomes two float16 parts, x = 2^e (high + low), with e chosen for every 64 elements
// of K of each of its rows; of the four products of parts all but low times low are summed. Tensor
// cores drop bits of long sums, so sums are carried over to float32 registers, where they are
// scaled, every 64 elements of K.
//
// The error of an element is at most about 2^-22 of the sum of |a b| over K, in practice below that
// of a float32 product, plus 2^-38 · 64 times the product of the largest |a| and |b| of each 64
// elements of K: elements that are 2^-16 of the largest near them have fewer bits than float32.
// Results that are infinite or NaN are summed again, element by element in float32. Source: Ootomo
// and Yokota 2022, "Recovering single precision accuracy from Tensor Cores while surpassing the
// FP32 theoretical peak performance"; scales by row as in Ozaki et al. 2012.
#pragma once

#include <cstdint>

#include "backends/cuda/kernel_launch.h"

namespace tracestep::cuda {

// An operand [batch, rows, K] as it is stored. `leading`: the distance in elements between rows,
// or, with is_down, between elements along K.
struct SplitOperand {
  const float* data = nullptr;
  std::int64_t leading = 0, batch_stride = 0;
  bool is_down = false;  // True: K runs down the stored rows.
};

// The product y[b] = A[b] · B[b]' (+ c[b]); y and c are dense [batch, m, n], and c may be y.
struct SplitProduct {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  SplitOperand a, b;  // [m, k], [n, k]
  const float* c = nullptr;
  float* y = nullptr;
  void* workspace =
      nullptr;  // plan_split_product(m, n, k, batch).workspace_bytes bytes, 256-byte aligned.
};

// Enqueues the product without allocating or waiting; on Hopper only. Every run gives the same
// bits. k >= 1, and no result may be empty.
cudaError_t multiply_split(const SplitProduct& product, const LaunchStream& stream);

// The gradients dx = g · w and dw = g' · x of y = x · w', both dense. The operands g [rows, n],
// w [n, k] and x [rows, k], each read once, are stored row by row, with no size 0.
struct SplitLinearGrad {
  std::int64_t rows = 0, n = 0, k = 0;
  const float *g = nullptr, *w = nullptr, *x = nullptr;
  std::int64_t g_leading = 0, w_leading = 0, x_leading = 0;
  float *dx = nullptr, *dw = nullptr;  // nullptr: the gradient is not needed.
  // plan_split_linear_grad(rows, n, k).workspace_bytes bytes of memory, 256-byte aligned.
  void* workspace = nullptr;
};
cudaError_t linear_grad_split(const SplitLinearGrad& grad, const LaunchStream& stream);

}  // namespace tracestep::cuda
