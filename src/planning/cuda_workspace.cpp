// Computes the workspace of the CUDA kernels; no rule depends on the GPU model.
#include "ops/adamw_groups.h"
#include "planning/cuda_plans.h"
#include "planning/workspace_rules.h"

namespace tracestep {
namespace {

using Call = const OpCall&;
using Traits = const DeviceTraits&;

constexpr std::int64_t kFloat = sizeof(float);

std::int64_t matmul(Call c, Traits) {
  const Type& a_type = c.inputs[0];
  const Shape &a = a_type.shape, &y = c.outputs[0].shape;
  if (y.product() == 0) return 0;
  const std::int64_t k = a.back(c.attrs.flag("transpose_a") ? 1 : 0);
  if (k == 0) return kCudaGemmWorkspaceBytes;
  const std::int64_t m = y.back(1), n = y.back(0), batch = y.product() / (m * n);
  const bool may_be_by_parts = c.op.find_attr("by_parts") != nullptr;
  if (may_be_by_parts && c.attrs.flag("by_parts") && a_type.dtype == DType::kF32)
    return plan_split_product(m, n, k, batch).workspace_bytes;
  const auto bytes_of = [](DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); };
  return plan_padded_product({.m = m,
                              .n = n,
                              .k = k,
                              .batch = batch,
                              .a_transposed = c.attrs.flag("transpose_a"),
                              .b_transposed = c.attrs.flag("transpose_b"),
                              .element_bytes = bytes_of(a_type.dtype),
                              .y_bytes = bytes_of(c.outputs[0].dtype)})
      .workspace_bytes;
}

// Returns the bytes of the library's workspace, and of gates and what they gate if nobody reads
// them: a GPU without the fused kernel writes them there, and every GPU has one plan.
std::int64_t gated_product(Call c, Traits) {
  const Type &x = c.inputs[0], &gate_up = c.outputs[0];
  const bool is_ours = is_low_precision(x.dtype) &&
                       takes_gated_product({x.shape[0], x.shape[1], gate_up.shape[1] / 2});
  const bool is_grad = c.outputs.size() == 1;
  const bool has_room = is_grad || (is_ours && !c.attrs.flag("unread"));
  return kCudaGemmWorkspaceBytes + (has_room ? 0 : gate_up.bytes());
}

std::int64_t linear_grad(Call c, Traits) {
  const Shape &g = c.inputs[0].shape, &dx = c.outputs[0].shape;
  const bool is_empty = g.product() * dx.product() == 0;
  return is_empty ? 0 : plan_split_linear_grad(g[0], g[1], dx[1]).workspace_bytes;
}

std::int64_t scaled_matmul(Call c, Traits) {
  return c.inputs[0].count() * c.inputs[1].count() == 0 ? 0 : kCudaGemmWorkspaceBytes;
}

std::int64_t quantize(Call c, Traits) {
  return quantize_parts(c.inputs[0].count()) * kFloat;
}

// Returns the bytes of the largest magnitude of each tile, and of that of the step before.
std::int64_t quantize_delayed(Call c, Traits) {
  const Shape& x = c.inputs[0].shape;
  return (quantize_tiles(x[0], x[1]) + 1) * kFloat;
}

std::int64_t tiles_of(const Type& x) {
  return quantize_tiles(x.shape[0], x.shape[1]);
}

// Returns the bytes of each weight's largest magnitude a step before, and of each tile's one now.
std::int64_t refresh_codes(Call c, Traits) {
  std::int64_t numbers = 0;
  for (std::size_t i = 1; i < c.inputs.size(); i += 4) numbers += 1 + tiles_of(c.inputs[i]);
  return numbers * kFloat;
}

// Returns the bytes of the largest magnitude of each tile.
std::int64_t adamw_codes(Call c, Traits) {
  const AdamwBlocks blocks = adamw_blocks(c.attrs, c.inputs.size());
  std::int64_t tiles = 0;
  for (std::size_t b = 0; b < blocks.count; ++b) {
    for (std::size_t i = 0; i < blocks.parts; ++i) tiles += tiles_of(c.inputs[blocks.part(b, i)]);
  }
  return tiles * kFloat;
}

std::int64_t reduction(Call c, Traits) {
  const std::int64_t results = c.outputs[0].count(), all = c.inputs[0].count();
  return results == 0 ? 0 : plan_reduction(results, all / results).workspace_bytes;
}

// Returns the bytes of one partial gradient of w per part of the rows.
std::int64_t rms_norm_grad(Call c, Traits) {
  return plan_norm_grad(c.inputs[3].count(), c.inputs[2].count()).workspace_bytes;
}

std::int64_t layer_norm_grad(Call c, Traits traits) {
  return 2 * rms_norm_grad(c, traits);
}

std::int64_t flash_attention(Call c, Traits) {
  return cuda_attention_forward_bytes(attention_sizes(c.inputs[0], c.inputs[1]));
}

std::int64_t cached_attention(Call c, Traits) {
  return plan_cached_attention(attention_sizes(c.inputs[0], c.inputs[3])).workspace_bytes;
}

std::int64_t flash_attention_grad(Call c, Traits) {
  return cuda_attention_backward_bytes(attention_sizes(c.inputs[1], c.inputs[2]));
}

std::int64_t scatter_add(Call c, Traits) {
  return plan_scatter(c.outputs[0].shape[0], c.inputs[1].count()).workspace_bytes;
}

// Returns the bytes of the losses of all rows, which are summed in order at the end.
std::int64_t cross_entropy(Call c, Traits) {
  return c.inputs[0].shape[0] * kFloat;
}

// Returns the bytes of two floats per row: its loss, and the logarithm of its sum of exponentials.
std::int64_t cross_entropy_with_grad(Call c, Traits) {
  return 2 * c.inputs[1].shape[0] * kFloat;
}

// Returns the bytes of one partial sum per part of each operand.
std::int64_t global_norm(Call c, Traits) {
  std::int64_t parts = 0;
  for (const Type& x : c.inputs) parts += cuda_norm_parts(x.count());
  return parts * kFloat;
}

constexpr WorkspaceRule kRules[] = {
    {"matmul", matmul},
    {"matmul_add", matmul},
    {"matmul_bias", matmul},
    {"matmul_swiglu", gated_product},
    {"matmul_swiglu_grad", gated_product},
    {"linear_grad", linear_grad},
    {"scaled_matmul", scaled_matmul},
    {"scaled_matmul_add", scaled_matmul},
    {"quantize", quantize},
    {"quantize_delayed", quantize_delayed},
    {"swiglu_quantized", quantize_delayed},
    {"swiglu_grad_quantized", quantize_delayed},
    {"refresh_codes", refresh_codes},
    {"adamw_codes", adamw_codes},
    {"sum", reduction},
    {"max", reduction},
    {"rms_norm_grad", rms_norm_grad},
    {"layer_norm_grad", layer_norm_grad},
    {"flash_attention", flash_attention},
    {"flash_attention_grad", flash_attention_grad},
    {"cached_attention", cached_attention},
    {"scatter_add", scatter_add},
    {"scatter_add_to", scatter_add},
    {"cross_entropy", cross_entropy},
    {"cross_entropy_with_grad", cross_entropy_with_grad},
    {"global_norm", global_norm},
};

}  // namespace

std::span<const WorkspaceRule> cuda_workspace_rules() {
  return kRules;
}

}  // namespace tracestep
