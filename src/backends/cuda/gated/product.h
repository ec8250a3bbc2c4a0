// Products of 16-bit matrices on the tensor cores of Hopper with SwiGLU, or its gradients, as their
// epilogue. The epilogue reads gates and gated values where the tensor cores leave them, rounded as
// if they had been stored. So SwiGLU needs no launch, and nothing that was just written is read
// again.
#pragma once

#include "backends/cuda/kernel_launch.h"
#include "base/dtype.h"
#include "planning/cuda_plans.h"

namespace tracestep::cuda {

// The operands, where T, D and F stand for the rows, width and columns of the sizes, which
// takes_gated_product() must accept. All matrices are bfloat16 or float16, dense, row by row, and
// 16-byte aligned.
struct GatedProduct {
  DType dtype = DType::kBF16;
  GatedProductSizes sizes;
  const void* x = nullptr;  // [T, D]
  const void* w = nullptr;  // [2F, D], with the weights of the gates first.
  void* gate_up = nullptr;  // [T, 2F] = x · w'; nullptr: not read.
  void* h = nullptr;        // [T, F] = silu(gate) · up; nullptr: not read.
};

struct GatedProductGrad {
  DType dtype = DType::kBF16;
  GatedProductSizes sizes;
  const void* dy = nullptr;       // [T, D]
  const void* w = nullptr;        // [D, F]
  const void* gate_up = nullptr;  // [T, 2F]
  void* d_gate_up = nullptr;      // [T, 2F]: the gradients, from the gradient dy · w of h.
};

// Enqueue one kernel each, without allocating or waiting; on Hopper only. Every run gives the same
// bits.
cudaError_t multiply_gated(const GatedProduct& product, const LaunchStream& stream);
cudaError_t multiply_gated_grad(const GatedProductGrad& product, const LaunchStream& stream);

}  // namespace tracestep::cuda
