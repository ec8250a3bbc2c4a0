#include "support/shrink.h"

#include <optional>
#include <vector>

#include <fmt/format.h>

#include "ir/rewrite.h"
#include "ir/verify.h"
#include "passes/memory_passes.h"

namespace tracestep::testing {
namespace {

// Drops leaves that are neither read nor updated.
Program without_unread_leaves(const Program& program) {
  std::vector<bool> is_needed(program.values.size(), false);
  const auto need = [&](ValueId id) { is_needed[static_cast<std::size_t>(id)] = true; };
  for (const Node& node : program.nodes) {
    for (ValueId id : node.inputs) need(id);
  }
  for (const Output& o : program.outputs) need(o.value);
  for (const Update& u : program.updates) need(u.leaf), need(u.value);
  Program out = program;
  std::erase_if(out.leaves, [&](ValueId id) { return !is_needed[static_cast<std::size_t>(id)]; });
  Rewriter r(out, "shrink");
  for (const Node& node : out.nodes) r.copy(node);
  return r.finish();
}

std::string new_name(const Program& program) {
  for (int i = 0;; ++i) {
    std::string name = fmt::format("r{}", i);
    if (program.find_leaf(name) == kNoValue) return name;
  }
}

// Replaces node `id` by inputs that stand for its results.
Program with_inputs_for(const Program& program, std::size_t id) {
  Rewriter r(program, "shrink");
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    const Node& node = program.nodes[i];
    if (i != id) {
      r.copy(node);
      continue;
    }
    std::vector<Val> results;
    for (ValueId v : node.outputs) {
      results.push_back(r.builder().input(new_name(r.builder().program()), program.type(v)));
    }
    r.replace(node, results);
  }
  return r.finish();
}

// Replaces an output by the operands of the node that makes it.
Program with_operands_of(Program program, std::size_t output) {
  const Output before = program.outputs[output];
  program.outputs.erase(program.outputs.begin() + static_cast<std::ptrdiff_t>(output));
  const NodeId maker = program.value(before.value).producer;
  if (maker == kNoNode) return program;
  for (ValueId id : program.node(maker).inputs) {
    program.outputs.push_back({fmt::format("{}_{}", before.name, program.outputs.size()), id});
  }
  return program;
}

// Programs that are smaller by one step, one at a time.
class Steps {
 public:
  explicit Steps(const Program& program) : program_(program) {}

  std::size_t count() const {
    return 2 * program_.outputs.size() + program_.updates.size() + program_.nodes.size();
  }
  Program at(std::size_t i) const {
    Program out = program_;
    if (i < out.outputs.size()) {
      out.outputs.erase(out.outputs.begin() + static_cast<std::ptrdiff_t>(i));
    } else if (i -= out.outputs.size(); i < out.outputs.size()) {
      out = with_operands_of(out, i);
    } else if (i -= out.outputs.size(); i < out.updates.size()) {
      out.updates.erase(out.updates.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      out = with_inputs_for(out, i - out.updates.size());
    }
    return without_unread_leaves(remove_dead_nodes(out));
  }

 private:
  const Program& program_;
};

}  // namespace

RandomCase shrunk(RandomCase random, const std::function<bool(const RandomCase&)>& fails) {
  const auto still_fails = [&](const Program& program) {
    RandomCase smaller = random;
    smaller.program = program;
    try {
      verify(program);
      return fails(smaller);
    } catch (const std::exception&) {
      return false;  // not a valid program any more, or one that means nothing to `fails`
    }
  };
  for (bool is_smaller = true; is_smaller;) {
    is_smaller = false;
    for (std::size_t i = 0; i < Steps(random.program).count(); ++i) {
      const Program next = Steps(random.program).at(i);
      const bool shrinks = next.nodes.size() < random.program.nodes.size() ||
                           next.outputs.size() < random.program.outputs.size() ||
                           next.updates.size() < random.program.updates.size();
      if (!shrinks || !still_fails(next)) continue;
      random.program = next;
      is_smaller = true;
      --i;
    }
  }
  return random;
}

}  // namespace tracestep::testing
