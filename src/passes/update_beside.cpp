#include "passes/pass_rules.h"
#include "passes/update_passes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/lanes.h"
#include "analysis/readers.h"
#include "ir/layer_path.h"
#include "ir/rewrite.h"

namespace tracestep {
namespace {

// Returns the last matrix product, at the same time as which earlier updates can run; else -1.
NodeId last_product(const Program& program) {
  auto id = static_cast<NodeId>(program.nodes.size()) - 1;
  while (id >= 0 && program.node(id).op->kernel_class != KernelClass::kGemm) --id;
  return id;
}

// True if the node updates matrices: vectors are too small for a launch of their own.
bool is_update(const Program& program, const Node& node) {
  return node.origin().phase == Phase::kOptimizer && has_lane(*node.op) &&
         program.type(node.outputs[0]).shape.rank() > 1;
}

// True if `node` and all readers of its results come before node `end` in the program.
bool is_done_before(const Program& program, const Readers& readers, const Node& node, NodeId end) {
  return std::ranges::all_of(node.outputs, [&](ValueId value) {
    const std::vector<NodeId>& all = readers.nodes[static_cast<std::size_t>(value)];
    return program.value(value).producer < end &&
           std::ranges::all_of(all, [&](NodeId reader) { return reader < end; });
  });
}

// Returns the program in which updates before the last product are joined, into a call per layer.
Program joined_by_layer(const Program& program, const std::function<bool(const OpDef&)>& has_kernel,
                        bool in_streams) {
  const NodeId end = last_product(program);
  const Readers readers(program);
  const auto parts = in_streams ? parts_for_streams(program) : std::map<const Node*, std::string>();
  return join_parts(program, has_kernel, [&](const Node& node) -> std::optional<std::string> {
    if (!is_update(program, node) || !is_done_before(program, readers, node, end))
      return std::nullopt;
    return in_streams ? parts.at(&node) : std::string(layer_of(node.origin().path));
  });
}

}  // namespace

Program update_beside(const Program& program, bool joins,
                      const std::function<bool(const OpDef&)>& has_kernel, bool in_streams) {
  const Program early = update_early(program);
  const Program from = joins ? joined_by_layer(early, has_kernel, in_streams) : early;
  const Readers readers(from);
  const NodeId end = last_product(from);
  Rewriter r(from, "update_beside");
  bool has_moved = false;
  for (NodeId id = 0; id < static_cast<NodeId>(from.nodes.size()); ++id) {
    const Node& node = from.node(id);
    const bool is_read = std::ranges::any_of(node.outputs, [&](ValueId value) {
      return !readers.nodes[static_cast<std::size_t>(value)].empty();
    });
    if (id > end || is_read || !is_update(from, node)) {
      r.copy(node);
      continue;
    }
    Attrs attrs = node.attrs;
    attrs.set("lane", std::int64_t{1});
    const auto guard = r.builder().like(node);
    r.replace(node, r.builder().call(*node.op, r.inputs(node), std::move(attrs)));
    has_moved = true;
  }
  return has_moved ? r.finish() : program;
}

// True if updates run on lane 1, which a CPU has not and several ranks need for collectives.
bool updates_beside(const PassOptions& o) {
  return o.updates() && o.context.traits.has_lanes() && !o.run.parallel.is_on();
}

Program update_beside(const Program& p, const PassOptions& o) {
  const auto has = [&](const OpDef& op) { return o.has_kernel(op); };
  return update_beside(p, o.updates_at_end(), has, streams_states(o));
}

}  // namespace tracestep
