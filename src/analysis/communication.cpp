#include "analysis/communication.h"

#include <vector>

#include "ir/op_def.h"
#include "ops/collective_sizes.h"

namespace tracestep {

std::int64_t received_bytes(const Program& program, std::int64_t rank) {
  std::int64_t total = 0;
  for (const Node& node : program.nodes) {
    if (node.op->kernel_class != KernelClass::kCollective) continue;
    std::vector<Type> inputs, outputs;
    for (ValueId id : node.inputs) inputs.push_back(program.type(id));
    for (ValueId id : node.outputs) outputs.push_back(program.type(id));
    total += received_bytes(OpCall{*node.op, node.attrs, inputs, outputs}, rank);
  }
  return total;
}

}  // namespace tracestep
