#include <algorithm>
#include <vector>

#include "base/indexed.h"
#include "ir/rewrite.h"
#include "ops/functions.h"
#include "passes/form_passes.h"
#include "passes/memory_passes.h"

namespace tracestep {
namespace {

class Sources {
 public:
  explicit Sources(const Program& program)
      : program_(program), r_(program, "quantize"), readers_(program.values.size(), 0) {
    for (const Node& node : program.nodes) {
      for (ValueId id : node.inputs) ++readers_[at(id)];
    }
    for (const Output& o : program.outputs) ++readers_[at(o.value)];
    for (const Update& u : program.updates) ++readers_[at(u.value)];
  }

  Program run() {
    for (const Node& node : program_.nodes) {
      if (node.op->name == "quantize_delayed" && replace(node)) continue;
      r_.copy(node);
    }
    return remove_dead_nodes(r_.finish());
  }

 private:
  // Returns the node that computes the value, with reshapes of its result in between; nullptr
  // where something else reads one of these, or the value is a leaf.
  const Node* source_of(ValueId id) const {
    while (readers_[at(id)] == 1 && program_.value(id).producer != kNoNode) {
      const Node& node = program_.node(program_.value(id).producer);
      if (node.op->name != "reshape") return &node;
      id = node.inputs[0];
    }
    return nullptr;
  }

  bool replace(const Node& node) {
    const Node* source = source_of(node.inputs[0]);
    if (source == nullptr) return false;
    if (source->op->name == "swiglu") {
      emit(node, *source, "swiglu_quantized");
      return true;
    }
    // The gradients of gate and up, side by side.
    if (source->op->name != "assemble" || source->inputs.size() != 2) return false;
    if (source->attrs.integer("axis") != 1) return false;
    const Node *gate = source_of(source->inputs[0]), *up = source_of(source->inputs[1]);
    if (gate == nullptr || gate != up || gate->op->name != "swiglu_grad") return false;
    if (program_.value(source->inputs[0]).layout.base != gate->outputs[0]) return false;
    emit(node, *gate, "swiglu_grad_quantized");
    return true;
  }

  // Emits both as one `op`, which reads the source's operands, as matrices, and the last magnitude.
  void emit(const Node& node, const Node& source, const char* op) {
    const Node* both[] = {&source, &node};
    const auto guard = r_.builder().like(both);
    r_.builder().set_made_by("quantize");
    const Shape& whole = program_.type(node.inputs[0]).shape;
    std::vector<Val> operands;
    for (ValueId id : source.inputs) {
      const std::int64_t columns = program_.type(id).count() / std::max<std::int64_t>(whole[0], 1);
      operands.push_back(ops::reshape(r_.map(id), {whole[0], columns}));
    }
    operands.push_back(r_.map(node.inputs[1]));
    r_.replace(node, r_.builder().call(find_op(op), operands, node.attrs));
  }

  const Program& program_;
  Rewriter r_;
  std::vector<int> readers_;  // by value
};

}  // namespace

Program quantize_sources(const Program& program) {
  return Sources(program).run();
}

}  // namespace tracestep
