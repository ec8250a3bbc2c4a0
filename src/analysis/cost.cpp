#include "analysis/cost.h"

#include <vector>

#include "ir/op_def.h"
#include "planning/needs.h"

namespace tracestep {
namespace {

struct Types {
  std::vector<Type> inputs, outputs;

  Types(const Program& program, const Node& node) {
    for (ValueId id : node.inputs) inputs.push_back(program.type(id));
    for (ValueId id : node.outputs) outputs.push_back(program.type(id));
  }
};

// Returns the value's bytes, with a broadcast dimension (stride 0) counted once.
std::int64_t distinct_bytes(const Value& value) {
  std::int64_t n = 1;
  for (int i = 0; i < value.type.shape.rank(); ++i) {
    if (value.layout.strides[i] != 0 || value.type.shape[i] == 0) n *= value.type.shape[i];
  }
  return n * static_cast<std::int64_t>(size_of(value.type.dtype));
}

}  // namespace

Cost& Cost::operator+=(const Cost& other) {
  flops += other.flops;
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  return *this;
}

Cost cost_of(const Program& program, const Node& node) {
  Cost out;
  if (!launches(program, node)) return out;
  const Types types(program, node);
  const OpCall call{*node.op, node.attrs, types.inputs, types.outputs};
  if (node.op->flops) out.flops = node.op->flops(call);
  if (node.op->bytes_read) {
    out.bytes_read = node.op->bytes_read(call);
  } else {
    for (ValueId id : node.inputs) out.bytes_read += distinct_bytes(program.value(id));
  }
  if (node.op->bytes_written) {
    out.bytes_written = node.op->bytes_written(call);
  } else {
    for (const Type& type : types.outputs) out.bytes_written += type.bytes();
  }
  return out;
}

Cost total_cost(const Program& program) {
  Cost total;
  for (const Node& node : program.nodes) total += cost_of(program, node);
  return total;
}

bool is_by_parts(const Node& node) {
  return node.op->find_attr("by_parts") != nullptr && node.attrs.flag("by_parts");
}

bool is_product(const Node& node) {
  return node.op->kernel_class == KernelClass::kGemm ||
         node.op->kernel_class == KernelClass::kAttention;
}

// Adds up the FLOPs of products, but not of updates (Muon's): those are none of the model's.
std::int64_t gemm_flops(const Program& program) {
  std::int64_t total = 0;
  for (const Node& node : program.nodes) {
    if (is_product(node) && node.origin().phase != Phase::kOptimizer)
      total += cost_of(program, node).flops;
  }
  return total;
}

std::int64_t workspace_bytes(const Program& program, const Node& node, const DeviceTraits& traits) {
  const Types types(program, node);
  return workspace_bytes({*node.op, node.attrs, types.inputs, types.outputs}, traits);
}

std::int64_t launch_count(const Program& program) {
  std::int64_t n = 0;
  for (const Node& node : program.nodes) n += launches(program, node) ? 1 : 0;
  return n;
}

}  // namespace tracestep
