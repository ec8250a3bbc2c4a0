#include "passes/join.h"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "analysis/lanes.h"
#include "ir/print.h"
#include "ir/rewrite.h"

namespace tracestep {
namespace {

struct Member {
  const Node* call = nullptr;
  const Node* shadow_cast = nullptr;  // of its first result; nullptr: none
  ValueId shadow = kNoValue;          // the state that the cast updates
};

struct Group {
  std::vector<Member> members;
  const Node* last = nullptr;  // the joined call takes its place
};

class Join {
 public:
  Join(const Program& program, const std::function<bool(const OpDef&)>& has_kernel,
       const std::function<std::optional<std::string>(const Node&)>& part_of)
      : program_(program), r_(program, "join"), readers_(program.values.size()) {
    for (const Node& node : program.nodes) {
      for (ValueId id : node.inputs) readers_[static_cast<std::size_t>(id)].push_back(&node);
    }
    for (const Update& u : program.updates) updated_by_[u.value] = u.leaf;
    for (const Node& node : program.nodes) {
      if (!node.op->join || !has_kernel(find_op(node.op->join->op))) continue;
      if (has_lane(*node.op) && node.attrs.integer("lane") != 0) continue;  // it has its place
      const auto member = member_of(node);
      const auto part = part_of(node);
      if (member && part) groups_[*part + "#" + key_of(*member)].members.push_back(*member);
    }
  }

  Program run() {
    std::map<const Node*, const Group*> groups;  // by every node that is replaced
    for (auto& [key, group] : groups_) {
      if (group.members.size() == 1 && group.members[0].shadow_cast == nullptr) continue;
      for (const Member& m : group.members) {
        for (const Node* node : {m.call, m.shadow_cast}) {
          if (node == nullptr) continue;
          groups[node] = &group;
          group.last = std::max(group.last, node);  // nodes lie in the order of the program
        }
      }
    }
    for (const Node& node : program_.nodes) {
      const auto found = groups.find(&node);
      if (found == groups.end()) {
        r_.copy(node);
      } else if (&node == found->second->last) {
        emit(*found->second);
      }
    }
    return r_.finish();
  }

 private:
  // nullopt: another node reads a result, which would then come too late.
  std::optional<Member> member_of(const Node& node) const {
    Member out{&node};
    for (ValueId id : node.outputs) {
      for (const Node* reader : readers_[static_cast<std::size_t>(id)]) {
        const auto updated = updated_by_.find(reader->outputs[0]);
        const bool keeps_shadow = id == node.outputs[0] && updated != updated_by_.end() &&
                                  program_.value(updated->second).role == Role::kWeightCast;
        if (!keeps_shadow || out.shadow_cast != nullptr) return std::nullopt;
        out.shadow_cast = reader;
        out.shadow = updated->second;
      }
    }
    return out;
  }

  // Equal for calls that can be merged: those with the same attributes, rates and factors.
  std::string key_of(const Member& m) const {
    std::string key = fmt::format("{}#{}", m.call->op->name, m.shadow_cast != nullptr);
    for (const auto& [name, value] : m.call->attrs.entries()) {
      key += "|" + name + "=" + print(value);
    }
    for (ValueId id : m.call->inputs) {
      key += program_.type(id).shape.empty() ? fmt::format(",{}", id) : ",";
    }
    return key;
  }

  void emit(const Group& group) {
    std::vector<JoinedCall> calls;
    std::vector<const Node*> nodes;
    for (const Member& m : group.members) {
      calls.push_back({r_.inputs(*m.call), m.shadow == kNoValue ? Val{} : r_.map(m.shadow)});
      nodes.push_back(m.call);
    }
    Builder& b = r_.builder();
    const auto guard = b.like(nodes);
    b.set_made_by("join");
    const Node& first = *group.members.front().call;
    const auto results = first.op->join->build(b, first.attrs, calls);
    for (std::size_t i = 0; i < group.members.size(); ++i) {
      const Member& m = group.members[i];
      std::vector<Val> own = results[i];
      if (m.shadow_cast != nullptr) {
        r_.replace(*m.shadow_cast, {own.back()});
        own.pop_back();
      }
      r_.replace(*m.call, own);
    }
  }

  const Program& program_;
  Rewriter r_;
  std::vector<std::vector<const Node*>> readers_;  // by value
  std::map<ValueId, ValueId> updated_by_;          // by new value: the leaf
  std::map<std::string, Group> groups_;
};

}  // namespace

Program join(const Program& program, const std::function<bool(const OpDef&)>& has_kernel) {
  return join_parts(program, has_kernel, [](const Node&) { return std::string(); });
}

Program join_parts(const Program& program, const std::function<bool(const OpDef&)>& has_kernel,
                   const std::function<std::optional<std::string>(const Node&)>& part_of) {
  return Join(program, has_kernel, part_of).run();
}

}  // namespace tracestep
