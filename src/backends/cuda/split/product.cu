// Decides which operands are split for a product, and where the parts lie in the workspace.
#include "backends/cuda/split/product.h"

#include "backends/cuda/split/multiply.cuh"

namespace tracestep::cuda {
namespace {

// Returns an operand [batch, rows, k] as it is stored, with the parts along K that are to be made.
SplitSource source_of(const SplitOperand& from, const SplitProduct& product,
                      const SplitParts& parts) {
  SplitSource out{.data = from.data,
                  .leading = from.leading,
                  .batch_stride = from.batch_stride,
                  .rows = from.is_down ? product.k : parts.rows,
                  .columns = from.is_down ? parts.rows : product.k,
                  .batch = product.batch};
  (from.is_down ? out.down : out.along) = parts;
  return out;
}

float* sums_of(const SplitTilesPlan& plan, void* workspace) {
  return reinterpret_cast<float*>(static_cast<std::byte*>(workspace) + plan.sums);
}

}  // namespace

cudaError_t multiply_split(const SplitProduct& product, const LaunchStream& stream) {
  const SplitProductPlan plan = plan_split_product(product.m, product.n, product.k, product.batch);
  const SplitParts a(plan.a, product.workspace), b(plan.b, product.workspace);
  const SplitSource sources[] = {source_of(product.a, product, a),
                                 source_of(product.b, product, b)};
  const cudaError_t status = split_sources(sources, stream);
  if (status != cudaSuccess) return status;
  return multiply_parts({.m = product.m,
                         .n = product.n,
                         .k = product.k,
                         .batch = product.batch,
                         .a = product.a,
                         .b = product.b,
                         .a_parts = a,
                         .b_parts = b,
                         .tiles = plan.tiles,
                         .sums = sums_of(plan.tiles, product.workspace),
                         .c = product.c,
                         .y = product.y},
                        stream);
}

cudaError_t linear_grad_split(const SplitLinearGrad& grad, const LaunchStream& stream) {
  const std::int64_t rows = grad.rows, n = grad.n, k = grad.k;
  const SplitLinearGradPlan plan = plan_split_linear_grad(rows, n, k);
  const SplitParts g_along(plan.g_along, grad.workspace), g_down(plan.g_down, grad.workspace),
      w(plan.w, grad.workspace), x(plan.x, grad.workspace);
  const SplitSource sources[] = {
      {.data = grad.g,
       .leading = grad.g_leading,
       .rows = rows,
       .columns = n,
       .along = g_along,
       .down = g_down},
      {.data = grad.w, .leading = grad.w_leading, .rows = n, .columns = k, .down = w},
      {.data = grad.x, .leading = grad.x_leading, .rows = rows, .columns = k, .down = x}};
  cudaError_t status = split_sources(sources, stream);
  if (status != cudaSuccess) return status;
  if (grad.dx != nullptr) {
    status = multiply_parts({.m = rows,
                             .n = k,
                             .k = n,
                             .a = {.data = grad.g, .leading = grad.g_leading},
                             .b = {.data = grad.w, .leading = grad.w_leading, .is_down = true},
                             .a_parts = g_along,
                             .b_parts = w,
                             .tiles = plan.dx,
                             .sums = sums_of(plan.dx, grad.workspace),
                             .y = grad.dx},
                            stream);
  }
  if (status != cudaSuccess || grad.dw == nullptr) return status;
  const SplitOperand g_of_dw{.data = grad.g, .leading = grad.g_leading, .is_down = true};
  return multiply_parts({.m = n,
                         .n = k,
                         .k = rows,
                         .a = g_of_dw,
                         .b = {.data = grad.x, .leading = grad.x_leading, .is_down = true},
                         .a_parts = g_down,
                         .b_parts = x,
                         .tiles = plan.dw,
                         .sums = sums_of(plan.dw, grad.workspace),
                         .y = grad.dw},
                        stream);
}

}  // namespace tracestep::cuda
