// Computes the workspace of the CPU kernels.
#include "base/integers.h"
#include "planning/cpu_plans.h"
#include "planning/workspace_rules.h"

namespace tracestep {
namespace {

using Call = const OpCall&;
using Traits = const DeviceTraits&;

constexpr std::int64_t kFloat = sizeof(float), kDouble = sizeof(double);
constexpr std::int64_t kIndex = sizeof(std::int64_t);

std::int64_t matmul(Call c, Traits traits) {
  const Type& y = c.outputs[0];
  const std::int64_t m = y.shape.back(1), n = y.shape.back(0);
  const std::int64_t k = c.inputs[0].shape.back(c.attrs.flag("transpose_a") ? 1 : 0);
  const std::int64_t batch = y.count() == 0 ? 0 : y.count() / (m * n);
  const bool adds = c.inputs.size() == 3;
  return plan_gemm(batch, m, n, k, c.inputs[0].dtype, y.dtype, traits.threads, adds)
      .workspace_bytes(traits.threads);
}

std::int64_t reduction(Call c, Traits) {
  const std::int64_t results = c.outputs[0].count(), all = c.inputs[0].count();
  return results == 0 ? 0 : reduction_workspace_bytes(results, all / results);
}

// Returns the bytes of one partial gradient of w per block of rows.
std::int64_t rms_norm_grad(Call c, Traits) {
  const std::int64_t width = c.inputs[2].count(), rows = c.inputs[3].count();
  return width == 0 ? 0 : ceil_div(rows, rms_norm_rows_per_block(rows)) * width * kFloat;
}

// Returns the bytes of one partial gradient each of w and of b per block of rows.
std::int64_t layer_norm_grad(Call c, Traits traits) {
  return 2 * rms_norm_grad(c, traits);
}

std::int64_t flash_attention(Call c, Traits traits) {
  return plan_attention(attention_sizes(c.inputs[0], c.inputs[1])).forward_bytes(traits.threads);
}

std::int64_t flash_attention_grad(Call c, Traits traits) {
  return plan_attention(attention_sizes(c.inputs[1], c.inputs[2])).backward_bytes(traits.threads);
}

// Returns the bytes of the offsets at which rows' indices begin, and of the indices sorted by row.
std::int64_t scatter_add(Call c, Traits) {
  return (c.outputs[0].shape[0] + 2 + c.inputs[1].count()) * kIndex;
}

// Returns the bytes of the losses of all rows, which are summed in order at the end.
std::int64_t cross_entropy(Call c, Traits) {
  return c.inputs[0].shape[0] * kFloat;
}

// Returns the bytes of a float for each row, as for the loss alone.
std::int64_t cross_entropy_with_grad(Call c, Traits) {
  return c.inputs[1].shape[0] * kFloat;
}

// Returns the bytes of one partial sum per chunk of each operand.
std::int64_t global_norm(Call c, Traits) {
  std::int64_t parts = 0;
  for (const Type& x : c.inputs) parts += ceil_div(x.count(), kNormChunk);
  return parts * kDouble;
}

constexpr WorkspaceRule kRules[] = {
    {"matmul", matmul},
    {"matmul_add", matmul},
    {"matmul_bias", matmul},
    {"sum", reduction},
    {"max", reduction},
    {"rms_norm_grad", rms_norm_grad},
    {"layer_norm_grad", layer_norm_grad},
    {"flash_attention", flash_attention},
    {"flash_attention_grad", flash_attention_grad},
    {"scatter_add", scatter_add},
    {"scatter_add_to", scatter_add},
    {"cross_entropy", cross_entropy},
    {"cross_entropy_with_grad", cross_entropy_with_grad},
    {"global_norm", global_norm},
};

}  // namespace

std::span<const WorkspaceRule> cpu_workspace_rules() {
  return kRules;
}

}  // namespace tracestep
