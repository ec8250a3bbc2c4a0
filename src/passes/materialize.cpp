#include "passes/kernel_passes.h"

#include <algorithm>
#include <map>

#include "analysis/assembly.h"
#include "analysis/buffer_plan.h"
#include "ir/rewrite.h"

namespace tracestep {
namespace {

class Copies {
 public:
  explicit Copies(Rewriter& r) : r_(r) {}

  // Returns a contiguous copy of `v`, made for `reader` and shared by all later readers:
  // backward then keeps the copy instead of the original, at the same number of bytes.
  Val of(Val v, const Node& reader) {
    const auto found = made_.find(v.id);
    if (found != made_.end()) return found->second;
    const auto guard = r_.from(reader);
    const Val out = r_.builder().call1("copy", {v});
    made_.emplace(v.id, out);
    return out;
  }

 private:
  Rewriter& r_;
  std::map<ValueId, Val> made_;
};

Program insert_copies(const Program& program) {
  Rewriter r(program, "materialize");
  Copies copies(r);
  for (const Node& node : program.nodes) {
    std::vector<Val> inputs = r.inputs(node);
    const Program& so_far = r.builder().program();
    std::vector<Type> types;
    types.reserve(inputs.size());
    for (const Val& v : inputs) types.push_back(v.type());
    if (node.op->is_view()) {
      std::vector<Type> results{program.type(node.outputs[0])};
      const Layout from = so_far.value(inputs[0].id).layout;
      if (!node.op->view({*node.op, node.attrs, types, results}, from)) {
        inputs[0] = copies.of(inputs[0], node);
      }
    } else if (node.op->accepts) {
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const Value& v = so_far.value(inputs[i].id);
        if (!node.op->accepts(static_cast<int>(i), v.type, v.layout.strides)) {
          inputs[i] = copies.of(inputs[i], node);
        }
      }
    }
    r.copy(node, inputs);
  }
  return r.finish();
}

// Copies the operands of assemblies that cannot be written in place; their copies can.
Program copy_into_assemblies(const Program& program) {
  const auto assembles = [](const Node& node) { return node.op->is_assembly(); };
  if (std::ranges::none_of(program.nodes, assembles)) return program;
  const Readers readers(program);
  Rewriter r(program, "materialize");
  for (const Node& node : program.nodes) {
    std::vector<Val> inputs = r.inputs(node);
    for (std::size_t i = 0; i < inputs.size() && assembles(node); ++i) {
      if (part_of_assembly(program, readers, node, static_cast<int>(i))) continue;
      const auto guard = r.from(node);
      inputs[i] = r.builder().call1("copy", {inputs[i]});
    }
    r.copy(node, inputs);
  }
  return r.finish();
}

}  // namespace

Program assign_updates(Program program) {
  const std::vector<Update> late = updates_out_of_place(program, plan_buffers(program));
  if (late.empty()) return program;
  for (const Update& u : late) {
    std::erase_if(program.updates, [&](const Update& x) { return x.leaf == u.leaf; });
  }
  Rewriter r(program, "materialize");
  for (const Node& node : program.nodes) r.copy(node);
  Builder& b = r.builder();
  const auto phase = b.phase(Phase::kOptimizer);
  const auto pass = b.made_by("materialize");
  for (const Update& u : late) {
    const auto path = b.scope(program.value(u.leaf).name);
    const Val leaf = r.map(u.leaf);
    b.update(leaf, b.call1("assign", {leaf, r.map(u.value)}));
  }
  return r.finish();
}

Program materialize(const Program& program) {
  return assign_updates(copy_into_assemblies(insert_copies(program)));
}

}  // namespace tracestep
