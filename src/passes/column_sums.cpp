#include "passes/kernel_passes.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "analysis/fused_body.h"
#include "analysis/readers.h"
#include "analysis/view_strides.h"
#include "ir/rewrite.h"
#include "ops/shared_attrs.h"
#include "passes/form_passes.h"
#include "passes/memory_passes.h"

namespace tracestep {
namespace {

// The fewest parts into which a sum over all rows is split; one thread block sums each part.
constexpr std::int64_t kFewestParts = 256;

// Returns how many rows a block sums; 1: there are too few rows to split the sum.
std::int64_t rows_per_part(std::int64_t rows) {
  std::int64_t out = 1;
  while (out < kMostRowsPerBlock && rows % (2 * out) == 0 && rows / (2 * out) >= kFewestParts) {
    out *= 2;
  }
  return out;
}

// Writes the column sum in two steps: over the rows of a part, then over the parts. Returns "no
// value" if there are too few rows.
Val in_two_steps(Rewriter& r, const Program& program, const Node& node) {
  const Type& type = program.type(node.inputs[0]);
  const std::int64_t width = type.shape.back(),
                     rows = type.count() / std::max<std::int64_t>(width, 1);
  const std::int64_t together = rows_per_part(rows);
  if (together == 1) return {};
  Builder& b = r.builder();
  const Val x = b.call1("reshape", {r.map(node.inputs[0])},
                        {{"shape", Dims{rows / together, together, width}}});
  Attrs of_parts = node.attrs;
  of_parts.set("axes", Dims{1});
  const Val parts = b.call(*node.op, {x}, of_parts).front();
  return b.call(*node.op, {parts}, {{"axes", Dims{0}}}).front();
}

// Splits column sums into two steps. nullopt: there are no column sums, or too few rows.
std::optional<Program> in_two_steps(const Program& program) {
  Rewriter r(program, "fuse");
  bool changed = false;
  for (const Node& node : program.nodes) {
    const Val sum = sums_columns(program, node) ? in_two_steps(r, program, node) : Val{};
    if (sum) {
      changed = true;
      r.replace(node, {sum});
    } else {
      r.copy(node);
    }
  }
  if (!changed) return std::nullopt;
  return r.finish();
}

// True if the program, without its last sums over parts, is one walk (analysis/fused_body.h).
bool walks_but_for_last_sums(Program parts) {
  for (Output& o : parts.outputs) {
    for (ValueId id = o.value;;) {
      const NodeId maker = parts.value(id).producer;
      if (maker == kNoNode || parts.node(maker).inputs.size() != 1) break;
      id = parts.node(maker).inputs[0];
      if (!sums_columns(parts, parts.node(maker))) continue;
      o.value = id;
      break;
    }
  }
  return find_walk(remove_dead_nodes(parts)).has_value();
}

// Returns a decomposition of `node`, an op on rows, that sums columns in two steps, so that it can
// be fused; nullopt: the node stays as it is.
std::optional<Program> parts_of(const Program& program, const Node& node) {
  Builder b("parts");
  std::vector<Val> inputs;
  for (ValueId id : node.inputs) {
    inputs.push_back(b.input(fmt::format("x{}", inputs.size()), program.type(id)));
  }
  const std::vector<Val> results = b.call(*node.op, inputs, node.attrs);
  for (std::size_t i = 0; i < results.size(); ++i) b.output(fmt::format("y{}", i), results[i]);
  const Program alone = b.finish();
  if (find_walk(alone)) return std::nullopt;
  const Program whole =
      decompose(alone, [](const OpDef& op) { return op.fusion == Fusion::kRows; });
  std::optional<Program> parts = in_two_steps(whole);
  if (!parts) return std::nullopt;
  parts = simplify(*parts);
  return walks_but_for_last_sums(*parts) ? parts : std::nullopt;
}

// Caches the results of parts_of() for a program; equal nodes, as in repeated layers, share one.
class PartsOfNodes {
 public:
  explicit PartsOfNodes(const Program& program) : program_(program) {}

  const std::optional<Program>& of(const Node& node) {
    static const std::optional<Program> none;
    if (node.op->fusion != Fusion::kRows || !node.op->decompose) return none;
    const auto found = std::ranges::find_if(
        known_, [&](const auto& known) { return are_alike(*known.first, node); });
    if (found != known_.end()) return found->second;
    return known_.emplace_back(&node, parts_of(program_, node)).second;
  }

 private:
  bool are_alike(const Node& a, const Node& b) const {
    const auto type = [&](ValueId id) { return program_.type(id); };
    return a.op == b.op && a.attrs.entries() == b.attrs.entries() &&
           std::ranges::equal(a.inputs, b.inputs, {}, type, type);
  }

  const Program& program_;
  std::deque<std::pair<const Node*, std::optional<Program>>> known_;
};

// Returns the elementwise node that computes the value, also through reshapes; nullptr: none does.
const Node* computed_by(const Program& p, ValueId id) {
  const NodeId maker = p.value(id).producer;
  if (maker == kNoNode) return nullptr;
  const Node& node = p.node(maker);
  if (!node.op->is_view()) return node.op->fusion == Fusion::kElementwise ? &node : nullptr;
  return keeps_order(p, node) ? computed_by(p, node.inputs[0]) : nullptr;
}

// True if the node is a sum of columns (the gradient of a bias) that a kernel can add up while it
// computes the operand element by element.
bool sums_what_is_computed(const Program& p, const Node& node) {
  constexpr std::int64_t kLongPart = 8;  // rows, beside which one of partial sums does not count
  if (node.op->find_attr(ops::kWideSum) == nullptr || !sums_columns(p, node)) return false;
  const Type& type = p.type(node.inputs[0]);
  const std::int64_t width = type.shape.back();
  if (width < 2 || width > kMostFusedWidth) return false;
  if (rows_per_part(type.count() / width) < kLongPart) return false;
  const Node* maker = computed_by(p, node.inputs[0]);
  return maker != nullptr && maker->origin().phase == node.origin().phase &&
         maker->epoch == node.epoch;
}

// --- one launch for the sums over parts ---------------------------------------------------------
// Sums over parts that one launch can compute, in program order: their matrices have equal numbers
// of rows. `collectives` read the results, and then come after the launch.
struct Sums {
  std::vector<NodeId> nodes, collectives;
};

// The most sums in one launch: more would save little, and their operands would live longer.
constexpr std::size_t kMostSums = 8;

// True if the node adds up partial sums: [P, W] → [W].
bool sums_parts(const Program& p, const Node& node) {
  if (!sums_columns(p, node) || p.type(node.inputs[0]).shape.rank() != 2) return false;
  const NodeId maker = p.value(node.inputs[0]).producer;
  return maker != kNoNode && p.node(maker).op == node.op && p.type(node.outputs[0]).count() > 0;
}

// Returns the collectives that read the node's result, if its readers up to node `last` are all
// collectives that, with their own readers, can wait until after `last`; else nullopt.
std::optional<std::vector<NodeId>> collectives_until(const Program& p, const Readers& readers,
                                                     const Node& node, NodeId last) {
  std::vector<NodeId> out;
  for (NodeId reader : readers.nodes[static_cast<std::size_t>(node.outputs[0])]) {
    if (reader > last) continue;
    const Node& early = p.node(reader);
    if (early.op->kernel_class != KernelClass::kCollective) return std::nullopt;
    for (NodeId next : readers.nodes[static_cast<std::size_t>(early.outputs[0])]) {
      if (next <= last) return std::nullopt;
    }
    out.push_back(reader);
  }
  return out;
}

// Returns groups of sums that differ only in operands and can wait for the last sum of their group.
std::vector<Sums> sums_to_merge(const Program& p) {
  const Readers readers(p);
  std::map<std::string, Sums> open;  // by what they have in common
  std::vector<Sums> out;
  for (std::size_t i = p.nodes.size(); i-- > 0;) {
    const Node& node = p.nodes[i];
    if (!sums_parts(p, node)) continue;
    const Type& type = p.type(node.inputs[0]);
    Sums& sums = open[fmt::format(
        "{}#{}@{} !{} {}x{}", node.op->name, node.epoch, name_of(node.origin().phase),
        name_of(p.value(node.outputs[0]).role), name_of(type.dtype), type.shape[0])];
    const NodeId last = sums.nodes.empty() ? static_cast<NodeId>(i) : sums.nodes.back();
    if (const auto collectives = collectives_until(p, readers, node, last)) {
      sums.nodes.insert(sums.nodes.begin(), static_cast<NodeId>(i));
      sums.collectives.insert(sums.collectives.begin(), collectives->begin(), collectives->end());
    }
    if (sums.nodes.size() == kMostSums) out.push_back(std::exchange(sums, {}));
  }
  for (auto& [kind, sums] : open) {
    if (sums.nodes.size() > 1) out.push_back(std::move(sums));
  }
  return out;
}

void emit_sums(const Program& p, const Sums& sums, Rewriter& r) {
  std::vector<const Node*> nodes;
  std::vector<Val> parts;
  for (NodeId id : sums.nodes) {
    nodes.push_back(&p.node(id));
    parts.push_back(r.map(p.node(id).inputs[0]));
  }
  Builder& b = r.builder();
  const auto guard = b.like(nodes);
  b.set_made_by("fuse");
  const Val whole = b.call1("assemble", parts, {{"axis", std::int64_t{1}}});
  const Val all = b.call(*nodes[0]->op, {whole}, nodes[0]->attrs).front();
  b.set_role(all, p.value(nodes[0]->outputs[0]).role);
  std::int64_t start = 0;
  for (const Node* node : nodes) {
    const std::int64_t stop = start + p.type(node->outputs[0]).count();
    const auto own = r.from(*node);
    r.replace(*node, {b.call1("slice", {all},
                              {{"axis", std::int64_t{0}}, {"start", start}, {"stop", stop}})});
    start = stop;
  }
  for (NodeId id : sums.collectives) r.copy(p.node(id));
}

}  // namespace

bool sums_columns(const Program& p, const Node& node) {
  if (node.op->fusion != Fusion::kRows || node.op->decompose) return false;
  const int rank = p.type(node.inputs[0]).shape.rank();
  Dims axes = node.attrs.ints("axes");
  std::sort(axes.begin(), axes.end());
  for (int i = 0; i < axes.rank(); ++i) {
    if (axes[i] != i) return false;
  }
  return rank > 1 && axes.rank() == rank - 1 && p.type(node.outputs[0]).shape.rank() == 1;
}

Program merge_column_sums(const Program& program) {
  std::map<NodeId, const Sums*> sums_of;  // by each node that is replaced or moved
  const std::vector<Sums> found = sums_to_merge(program);
  if (found.empty()) return program;
  for (const Sums& sums : found) {
    for (NodeId id : sums.nodes) sums_of[id] = &sums;
    for (NodeId id : sums.collectives) sums_of[id] = &sums;
  }
  Rewriter r(program, "fuse");
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    const auto at = sums_of.find(static_cast<NodeId>(i));
    if (at == sums_of.end()) {
      r.copy(program.nodes[i]);
    } else if (at->second->nodes.back() == at->first) {
      emit_sums(program, *at->second, r);
    }
  }
  return r.finish();
}

Program split_column_sums(const Program& program) {
  Rewriter r(program, "fuse");
  PartsOfNodes parts_of_nodes(program);
  for (const Node& node : program.nodes) {
    if (const std::optional<Program>& parts = parts_of_nodes.of(node)) {
      const auto guard = r.from(node);
      r.replace(node, inline_program(r.builder(), *parts, r.inputs(node)));
    } else if (sums_what_is_computed(program, node)) {
      const auto guard = r.from(node);
      const Val sum = in_two_steps(r, program, node);
      r.builder().set_role(sum, program.value(node.outputs[0]).role);
      r.replace(node, {sum});
    } else {
      r.copy(node);
    }
  }
  return r.finish();
}

}  // namespace tracestep
