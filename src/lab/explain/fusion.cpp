// Explains what fusing saves: counted in programs, whose kernels and bytes are known without a run.
#include <algorithm>

#include "analysis/cost.h"
#include "analysis/origins.h"
#include "ir/op_def.h"
#include "lab/explain/topics.h"
#include "nn/scopes.h"

namespace tracestep {
namespace {

std::int64_t moved(const Cost& cost) {
  return cost.bytes_read + cost.bytes_written;
}

Program step_with(const ExplainInput& input, Granularity ops) {
  return step_program({.model = input.model, .shape = input.shape, .ops = ops});
}

// The bytes that all layers' SwiGLU move in the forward pass.
std::int64_t swiglu_bytes(const Program& program) {
  const std::string swiglu = scope::path({scope::kFeedForward, scope::kSwiglu});
  std::int64_t out = 0;
  for (const Node& node : program.nodes) {
    const bool is_forward = node.origin().phase == Phase::kForward;
    if (is_forward && component_of(node.origin().path) == swiglu) {
      out += moved(cost_of(program, node));
    }
  }
  return out;
}

// The bytes that products and updates move, which no fusion removes.
std::int64_t least_bytes(const Program& program) {
  std::int64_t out = 0;
  for (const Node& node : program.nodes) {
    const bool is_update = node.op->kernel_class == KernelClass::kOptimizer;
    if (is_product(node) || is_update) out += moved(cost_of(program, node));
  }
  return out;
}

void set_counts(Values& out, const std::string& name, const Program& program) {
  out.set(name + "_launches", launch_count(program));
  out.set(name + "_bytes", moved(total_cost(program)));
}

}  // namespace

void explain_fusion(const ExplainInput& input, Explanation& out) {
  const Program parts = step_with(input, Granularity::kPrimitive);
  const Program whole = step_with(input, Granularity::kFused);
  const Program compiled = step_program(
      {.model = input.model, .shape = input.shape, .executor = ExecutorKind::kCompiled},
      DeviceTraits{.kind = DeviceKind::kCuda});
  Values& v = out.values;
  if (input.model.is_gated && input.model.activation == Activation::kSilu) {
    v.set("swiglu_parts", swiglu_bytes(parts) / input.model.layers);
    v.set("swiglu_whole", swiglu_bytes(whole) / input.model.layers);
  }
  set_counts(v, "parts", parts);
  set_counts(v, "whole", whole);
  set_counts(v, "compiled", compiled);
  v.set("least_bytes", least_bytes(compiled));
  const std::int64_t launches = launch_count(parts), bytes = moved(total_cost(parts));
  for (Composite composite : kNamedComposites) {
    const Program one = step_with(input, Granularity::kPrimitive.with(composite));
    const std::int64_t after = launch_count(one);
    v.add("composite")
        .set("name", name_of(composite))
        .set("before", launches)
        .set("after", after)
        .set("bytes", bytes - moved(total_cost(one)));
  }
  const ResultRow row = input.row();
  const auto wall = row.wall_ms(), busy = row.device_busy_ms();
  if (!wall || !busy) return;
  v.set("row", whose(row, input));
  v.set("wall", *wall).set("busy", *busy);
}

}  // namespace tracestep
