// Computes products of 16-bit operands whose rows are no multiple of 8 elements long: matrices are
// copied to and from longer rows, as planned in planning/cuda_plans.h.
#pragma once

#include "backends/cuda/products/gemm.h"
#include "planning/cuda_plans.h"

namespace tracestep::cuda {

// A product of matrices of which some are padded copies, prepared once for one problem.
class PaddedProduct {
 public:
  // True if padding pays, there is enough workspace (operands may be stored otherwise than the plan
  // assumed), and matrices of which the plan makes no copy can stay in place.
  static bool applies(const GemmProblem& problem, std::int64_t workspace_bytes);
  // Prepares the product; throws DeviceError.
  PaddedProduct(const GemmProblem& problem, const CudaStream& stream);

  // Queues y = a · b (+ c, or the bias `c`); `c` may be y. Throws DeviceError.
  void multiply(const void* a, const void* b, const void* c, void* y, void* workspace) const;
  // Chooses the algorithm, with the operands of multiply(); overwrites y and `workspace`.
  void tune(const void* a, const void* b, void* y, void* workspace) const;

 private:
  const GemmProblem problem_;
  const PaddedProductPlan plan_;
  const CudaStream& stream_;
  Gemm::Product& product_;
};

// Queues a copy of a dense row to every row of the dense matrix y.
cudaError_t repeat_row(const void* row, void* y, std::int64_t rows, std::int64_t columns,
                       std::int64_t element_bytes, const LaunchStream& stream);

}  // namespace tracestep::cuda
