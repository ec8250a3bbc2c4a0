#include "passes/memory_passes.h"

#include <algorithm>
#include <functional>
#include <map>

#include <fmt/format.h>

#include "ir/print.h"
#include "ir/rewrite.h"

namespace tracestep {
namespace {

std::string key_of(const Node& node, const std::vector<Val>& inputs) {
  std::string key =
      fmt::format("{}#{}@{}", node.op->name, node.epoch, static_cast<int>(node.origin().phase));
  for (const auto& [name, value] : node.attrs.entries()) key += "|" + name + "=" + print(value);
  for (const Val& v : inputs) key += fmt::format(",{}", v.id);
  return key;
}

// Returns the operand that an identity node returns unchanged, or "no value".
Val identity(Builder& builder, const Node& node, const std::vector<Val>& inputs) {
  if (!node.op->identity) return {};
  return node.op->identity({builder, node.attrs, inputs, {}, {}, {}});
}

Program merge_equal(const Program& program) {
  Rewriter r(program, "simplify");
  std::map<std::string, std::vector<Val>> seen;
  for (const Node& node : program.nodes) {
    const std::vector<Val> inputs = r.inputs(node);
    if (const Val same = identity(r.builder(), node, inputs)) {
      r.replace(node, {same});
      continue;
    }
    const std::string key = key_of(node, inputs);
    const bool pure = node.op->kernel_class != KernelClass::kCollective;
    const auto found = seen.find(key);
    if (pure && found != seen.end()) {
      r.replace(node, found->second);
    } else {
      seen.emplace(key, r.copy(node));
    }
  }
  return r.finish();
}

}  // namespace

Program remove_dead_nodes(const Program& program) {
  std::vector<bool> live(program.values.size(), false);
  const auto mark = [&](ValueId id) { live[static_cast<std::size_t>(id)] = true; };
  for (const Output& o : program.outputs) mark(o.value);
  for (const Update& u : program.updates) mark(u.value);
  std::vector<bool> keep(program.nodes.size(), false);
  for (std::size_t i = program.nodes.size(); i-- > 0;) {
    const Node& node = program.nodes[i];
    for (ValueId id : node.outputs) keep[i] = keep[i] || live[static_cast<std::size_t>(id)];
    if (!keep[i]) continue;
    for (ValueId id : node.inputs) mark(id);
  }
  if (std::ranges::all_of(keep, std::identity())) return program;
  Rewriter r(program, "simplify");
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    if (keep[i]) r.copy(program.nodes[i]);
  }
  return r.finish();
}

Program simplify(const Program& program) {
  return remove_dead_nodes(merge_equal(program));
}

}  // namespace tracestep
