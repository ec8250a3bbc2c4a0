#include "passes/parallel_passes.h"
#include "passes/pass_rules.h"

#include <algorithm>
#include <map>

#include "analysis/readers.h"
#include "ir/rewrite.h"

namespace tracestep {
namespace {

class NarrowGathers {
 public:
  explicit NarrowGathers(const Program& program)
      : program_(program), readers_(program), r_(program, "narrow_gathers") {}

  Program run() {
    for (const Node& node : program_.nodes) {
      if (is_narrowed(node)) {
        narrow(node);
      } else if (!reads_narrowed(node)) {
        r_.copy(node);
      }
    }
    return r_.finish();
  }

 private:
  const std::vector<NodeId>& readers_of(ValueId id) const {
    return readers_.nodes[static_cast<std::size_t>(id)];
  }

  // True if the node gathers a parameter that only casts to one low dtype read.
  bool is_narrowed(const Node& node) const {
    if (node.op->kernel_class != KernelClass::kCollective) return false;
    const ValueId whole = node.outputs[0];
    const std::vector<NodeId>& readers = readers_of(whole);
    const bool is_gather =
        node.inputs.size() == 1 && program_.value(node.inputs[0]).leaf == LeafKind::kParameter;
    if (!is_gather || readers.empty() || readers_.at_end[static_cast<std::size_t>(whole)]) {
      return false;
    }
    const DType low = program_.type(program_.node(readers[0]).outputs[0]).dtype;
    return is_low_precision(low) && std::ranges::all_of(readers, [&](NodeId id) {
             const Node& reader = program_.node(id);
             return reader.op->only_converts && program_.type(reader.outputs[0]).dtype == low;
           });
  }

  bool reads_narrowed(const Node& node) const {
    const NodeId maker = node.inputs.empty() ? kNoNode : program_.value(node.inputs[0]).producer;
    return maker != kNoNode && is_narrowed(program_.node(maker));
  }

  // Replaces the casts of a gathered weight by a gather of the rank's part, which is cast first.
  void narrow(const Node& gather) {
    const std::vector<NodeId>& casts = readers_of(gather.outputs[0]);
    const Node& cast = program_.node(casts[0]);
    const auto guard = r_.from(gather);
    Builder& b = r_.builder();
    const Val part = b.call(*cast.op, r_.inputs(gather), cast.attrs).front();
    b.set_role(part, Role::kWeightCast);
    const Val whole = b.call(*gather.op, {part}, gather.attrs).front();
    b.set_role(whole, Role::kWeightCast);
    for (NodeId id : casts) r_.replace(program_.node(id), {whole});
  }

  const Program& program_;
  const Readers readers_;
  Rewriter r_;
};

}  // namespace

Program narrow_gathers(const Program& program) {
  return NarrowGathers(program).run();
}

bool narrows_gathers(const PassOptions& o) {
  return o.shards_weights() && o.casts();
}

}  // namespace tracestep
