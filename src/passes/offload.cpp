#include "passes/pass_rules.h"
#include "passes/update_passes.h"

#include <algorithm>
#include <set>
#include <vector>

#include "ir/rewrite.h"

namespace tracestep {
namespace {

// Returns, for each value, whether it is a leaf that something other than an update reads.
std::vector<bool> read_in_the_step(const Program& program) {
  std::vector<bool> out(program.values.size(), false);
  const auto mark = [&](ValueId id) {
    for (ValueId leaf : leaves_of(program, id)) out[static_cast<std::size_t>(leaf)] = true;
  };
  for (const Node& node : program.nodes) {
    if (node.origin().phase == Phase::kOptimizer) continue;
    std::ranges::for_each(node.inputs, mark);
  }
  for (const Output& output : program.outputs) mark(output.value);
  return out;
}

// True if the leaf's kind is for updates alone: moments, and weights that have narrow copies.
bool is_of_optimizer(const Program& program, const Value& leaf) {
  if (leaf.type.shape.empty()) return false;
  if (leaf.leaf == LeafKind::kState) return leaf.role == Role::kOptimizerState;
  return leaf.leaf == LeafKind::kParameter && program.find_leaf(shadow_name(leaf.name)) != kNoValue;
}

}  // namespace

Program offload(const Program& program) {
  const std::vector<bool> is_read = read_in_the_step(program);
  const auto may_move = [&](ValueId id) {
    return !is_read[static_cast<std::size_t>(id)] && is_of_optimizer(program, program.value(id));
  };
  std::set<std::string_view> stay;  // blocks
  for (ValueId id : program.leaves) {
    if (!may_move(id)) stay.insert(program.value(id).part.block);
  }
  Rewriter r(program, "offload");
  for (ValueId id : program.leaves) {
    const std::string& block = program.value(id).part.block;
    if (!may_move(id) || (!block.empty() && stay.contains(block))) continue;
    r.builder().set_memory(r.map(id), Memory::kHost);
  }
  for (const Node& node : program.nodes) r.copy(node);
  return r.finish();
}

bool offloads(const PassOptions& o) {
  return has_optimizer(o.run.offload) && o.context.traits.has_own_memory();
}

}  // namespace tracestep
