#include "analysis/cost.h"

#include <vector>

#include "ir/op_def.h"
#include "ops/collective_sizes.h"

namespace tracestep {

std::int64_t received_bytes(const Program& program, const Node& node, std::int64_t rank) {
  if (node.op->kernel_class != KernelClass::kCollective) return 0;
  std::vector<Type> inputs, outputs;
  for (ValueId id : node.inputs) inputs.push_back(program.type(id));
  for (ValueId id : node.outputs) outputs.push_back(program.type(id));
  return received_bytes(OpCall{*node.op, node.attrs, inputs, outputs}, rank);
}

std::int64_t received_bytes(const Program& program, std::int64_t rank) {
  std::int64_t total = 0;
  for (const Node& node : program.nodes) total += received_bytes(program, node, rank);
  return total;
}

}  // namespace tracestep
