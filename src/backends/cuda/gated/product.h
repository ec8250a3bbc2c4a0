// Products of matrices in 16 bits on the tensor cores of Hopper with SwiGLU, or its gradients, as
// their epilogue: these read gates and what they gate, rounded as if they had been stored, where
// the tensor cores leave them. So SwiGLU needs no launch, and nothing that was just written is read
// again.
#pragma once

#include "backends/cuda/kernel_launch.h"
#include "base/dtype.h"
#include "planning/cuda_plans.h"

namespace tracestep::cuda {

// [T, D], [T, F] and so on stand for the sizes' rows, width and columns, which
// takes_gated_product(). All matrices are of bfloat16 or float16, dense, row by row, and 16-byte
// aligned.
struct GatedProduct {
  DType dtype = DType::kBF16;
  GatedProductSizes sizes;
  const void* x = nullptr;  // [T, D]
  const void* w = nullptr;  // [2F, D], first those of the gates
  void* gate_up = nullptr;  // [T, 2F] = x · w'; null: nobody reads it
  void* h = nullptr;        // [T, F] = silu(gate) · up; likewise
};

struct GatedProductGrad {
  DType dtype = DType::kBF16;
  GatedProductSizes sizes;
  const void* dy = nullptr;       // [T, D]
  const void* w = nullptr;        // [D, F]
  const void* gate_up = nullptr;  // [T, 2F]
  void* d_gate_up = nullptr;      // [T, 2F], for the gradient dy · w of h
};

// Each enqueues one kernel, without allocating or waiting; on Hopper only. The same bits every run.
cudaError_t multiply_gated(const GatedProduct& product, const LaunchStream& stream);
cudaError_t multiply_gated_grad(const GatedProductGrad& product, const LaunchStream& stream);

}  // namespace tracestep::cuda
