#include "passes/parallel_passes.h"
#include "passes/pass_rules.h"

#include "ir/rewrite.h"
#include "ops/collective_sizes.h"

namespace tracestep {
namespace {

// Returns the program with smaller leaves in the places of its parameters; it is read by
// Rewriter only, which makes new nodes.
Program with_parts(const Program& program, const RankGroup& group) {
  Program out = program;
  for (ValueId id : program.leaves) {
    Value& leaf = out.values[static_cast<std::size_t>(id)];
    if (leaf.leaf != LeafKind::kParameter) continue;
    leaf.type.shape = {part_count(leaf.type.count(), group.ranks)};
    leaf.layout.strides = contiguous_strides(leaf.type.shape);
    leaf.part = {};
  }
  return out;
}

class Shard {
 public:
  Shard(const Program& program, const RankGroup& group)
      : program_(program),
        parts_(with_parts(program, group)),
        group_(group),
        r_(parts_, "shard"),
        gathered_(program.values.size(), false) {}

  Program run() {
    for (const Node& node : program_.nodes) {
      for (ValueId id : node.inputs) {
        if (program_.value(id).leaf == LeafKind::kParameter) gather(id);
      }
      r_.copy(node);
    }
    return r_.finish();
  }

 private:
  void gather(ValueId id) {
    if (gathered_[static_cast<std::size_t>(id)]) return;
    gathered_[static_cast<std::size_t>(id)] = true;
    Builder& b = r_.builder();
    const Value& parameter = program_.value(id);
    const auto path = b.scope(component_path(parameter.name));
    const auto phase = b.phase(Phase::kCommunication);
    const auto pass = b.made_by("shard");
    r_.replace(id, b.call1("all_gather", {r_.map(id)},
                           in_group(group_, {{"shape", parameter.type.shape}})));
  }

  const Program& program_;
  const Program parts_;
  const RankGroup group_;
  Rewriter r_;
  std::vector<bool> gathered_;  // by value
};

}  // namespace

Program shard(const Program& program, const RankGroup& group) {
  return Shard(program, group).run();
}

Program shard(const Program& p, const PassOptions& o) {
  return shard(p, o.run.parallel.across_replicas());
}

}  // namespace tracestep
