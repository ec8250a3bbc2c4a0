#include "passes/pass_rules.h"
#include "passes/update_passes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "analysis/lanes.h"
#include "base/indexed.h"
#include "ir/layer_path.h"
#include "ir/print.h"
#include "ir/rewrite.h"

namespace tracestep {
namespace {

struct Member {
  const Node* call = nullptr;
  const Node* shadow_cast = nullptr;  // of its first result; nullptr: none
  ValueId shadow = kNoValue;          // the state that the cast updates
  // Nodes that make operands for this call alone, and nodes that gather its results: they move too.
  std::vector<const Node*> before = {}, behind = {};
  NodeId ready = kNoNode;  // makes the last of its other operands
  std::int64_t bytes = 0;  // of that operand
  std::string key = {};    // equal for calls that can be joined
  int batch = 0;           // among them only members of one batch are
};

// The calls that become one joined call.
using Group = std::vector<Member>;

class Join {
 public:
  Join(const Program& program, const std::function<bool(const OpDef&)>& has_kernel,
       const std::function<std::optional<std::string>(const Node&)>& part_of,
       const Parallel& choice)
      : program_(program),
        choice_(choice),
        r_(program, "join"),
        readers_(program.values.size()),
        last_reader_(program.values.size(), nullptr) {
    for (const Node& node : program.nodes) {
      for (ValueId id : node.inputs) {
        readers_[at(id)].push_back(&node);
        for (ValueId leaf : leaves_of(program, id)) last_reader_[at(leaf)] = &node;
      }
    }
    for (const Update& u : program.updates) updated_by_[u.value] = u.leaf;
    Group all;
    for (const Node& node : program.nodes) {
      if (!node.op->join || !has_kernel(find_op(node.op->join->op))) continue;
      if (has_lane(*node.op) && node.attrs.integer("lane") != 0) continue;  // it has its place
      auto member = member_of(node);
      const auto part = part_of(node);
      if (!member || !part) continue;
      member->key = *part + "#" + key_of(*member);
      all.push_back(std::move(*member));
    }
    const Node* const last = last_of(all);
    const bool is_cut = cut(all);
    std::map<std::pair<int, std::string>, Group> groups;
    for (const Member& m : all) groups[{m.batch, m.key}].push_back(m);
    for (auto& [key, group] : groups) {
      const Node* const behind = is_cut ? last : last_of(group);
      place(std::move(group), behind);
    }
  }

  Program run() {
    for (const Node& node : program_.nodes) {
      if (!moved_.contains(&node)) r_.copy(node);
      const auto here = placed_.find(&node);
      if (here == placed_.end()) continue;
      for (const Group& group : here->second) emit(group);
    }
    return r_.finish();
  }

 private:
  // Returns the node as a member; nullopt: a joined call would come too late for a result's reader.
  std::optional<Member> member_of(const Node& node) const {
    Member out{&node};
    for (ValueId id : node.outputs) {
      for (const Node* reader : readers_[at(id)]) {
        if (is_gathered(*reader)) {
          if (!follows(*reader, out)) return std::nullopt;
          continue;
        }
        const auto updated = updated_by_.find(reader->outputs[0]);
        const bool keeps_shadow = id == node.outputs[0] && updated != updated_by_.end() &&
                                  program_.value(updated->second).role == Role::kWeightCast;
        if (!keeps_shadow || out.shadow_cast != nullptr) return std::nullopt;
        out.shadow_cast = reader;
        out.shadow = updated->second;
      }
    }
    find_operands(out);
    return out;
  }

  static bool is_gathered(const Node& reader) {
    return reader.op->kernel_class == KernelClass::kCollective;
  }

  // Adds `node` and readers of its results to `out.behind`; false: one reads other nodes' results.
  bool follows(const Node& node, Member& out) const {
    const bool is_own = std::ranges::all_of(node.inputs, [&](ValueId id) {
      const NodeId maker = program_.value(id).producer;
      if (maker == kNoNode || &program_.node(maker) == out.call) return true;
      return std::ranges::find(out.behind, &program_.node(maker)) != out.behind.end();
    });
    if (!is_own) return false;
    out.behind.push_back(&node);
    return std::ranges::all_of(node.outputs, [&](ValueId id) {
      return std::ranges::all_of(readers_[at(id)],
                                 [&](const Node* reader) { return follows(*reader, out); });
    });
  }

  void find_operands(Member& out) const {
    for (ValueId id : out.call->inputs) {
      const NodeId maker = program_.value(id).producer;
      const Type& type = program_.type(id);
      if (maker == kNoNode || type.shape.empty()) continue;
      if (!out.behind.empty() && is_made_for(*out.call, program_.node(maker))) {
        out.before.push_back(&program_.node(maker));
      } else if (maker > out.ready) {
        out.ready = maker;
        out.bytes = type.bytes();
      }
    }
  }

  // True if `maker` reads leaves alone, and nothing but the call reads its result.
  bool is_made_for(const Node& call, const Node& maker) const {
    return maker.outputs.size() == 1 &&
           std::ranges::all_of(readers_[at(maker.outputs[0])],
                               [&](const Node* reader) { return reader == &call; }) &&
           std::ranges::all_of(maker.inputs,
                               [&](ValueId id) { return program_.value(id).producer == kNoNode; });
  }

  // Returns a text, equal for calls that can be joined: their attributes, rates and factors agree.
  std::string key_of(const Member& m) const {
    std::string key =
        fmt::format("{}#{}#{}", m.call->op->name, m.shadow_cast != nullptr, m.behind.empty());
    for (const auto& [name, value] : m.call->attrs.entries()) {
      key += "|" + name + "=" + print(value);
    }
    for (ValueId id : m.call->inputs) {
      key += program_.type(id).shape.empty() ? fmt::format(",{}", id) : ",";
    }
    return key;
  }

  // Returns the last, in program order, of the calls and of the readers of shadows that the joined
  // call overwrites. Compares addresses, since nodes lie in that order.
  const Node* last_of(const Group& group) const {
    const Node* last = nullptr;
    for (const Member& m : group) {
      last = std::max(last, m.call);
      if (m.shadow != kNoValue) last = std::max(last, last_reader_[at(m.shadow)]);
    }
    return last;
  }

  // Notes that the joined call is emitted after `last`, unless it is one call that stays there.
  void place(Group group, const Node* last) {
    const bool is_alone =
        group.size() == 1 && group[0].shadow_cast == nullptr && group[0].behind.empty();
    if (is_alone && group[0].call == last) return;
    for (const Member& m : group) {
      moved_.insert(m.call);
      if (m.shadow_cast != nullptr) moved_.insert(m.shadow_cast);
      moved_.insert(m.before.begin(), m.before.end());
      moved_.insert(m.behind.begin(), m.behind.end());
    }
    placed_[last].push_back(std::move(group));
  }

  // Sorts the calls of several ranks by when they can run, and numbers their batches. Returns
  // false, and does nothing, if no collective runs at the same time as the calls.
  bool cut(Group& all) const {
    const bool in_batches =
        choice_.sums_beside_updates() || (choice_.shards_optimizer() && !choice_.shards_weights());
    const bool is_beside = choice_.replicas() > 1 && choice_.runs_beside();
    if (all.empty() || (!in_batches && !is_beside)) return false;
    std::ranges::stable_sort(all, {}, &Member::ready);
    if (in_batches) {
      number_batches(all);
    } else {
      number_last(all);
    }
    return true;
  }

  void number_batches(Group& all) const {
    int batch = 0;
    std::int64_t bytes = 0;
    for (Member& member : all) {
      if (is_batch(bytes)) {
        ++batch;
        bytes = 0;
      }
      member.batch = batch;
      bytes += carried_bytes(member);
    }
  }

  // Gives the members of the last batch the number 1. A gradient that fills a batch ends it, so
  // members are taken from the end until the last batch is full.
  void number_last(Group& all) const {
    all.back().batch = 1;
    std::int64_t bytes = 0;
    for (std::size_t i = all.size() - 1; i-- > 0 && !is_batch(bytes);) {
      all[i].batch = 1;
      bytes += carried_bytes(all[i]);
    }
  }

  bool is_batch(std::int64_t bytes) const { return bytes > 0 && bytes >= choice_.full_bytes(); }

  // Returns the bytes that the collective which sums the member's gradient carries.
  std::int64_t carried_bytes(const Member& member) const {
    return member.bytes * (choice_.shards_optimizer() ? choice_.replicas() : 1);
  }

  void emit(const Group& group) {
    for (const Member& m : group) {
      for (const Node* node : m.before) r_.copy(*node);
    }
    if (group.size() == 1 && group[0].shadow_cast == nullptr) {
      r_.copy(*group[0].call);
    } else {
      emit_call(group);
    }
    for (const Member& m : group) {
      for (const Node* node : m.behind) r_.copy(*node);
    }
  }

  void emit_call(const Group& group) {
    std::vector<JoinedCall> calls;
    std::vector<const Node*> nodes;
    for (const Member& m : group) {
      calls.push_back({r_.inputs(*m.call), m.shadow == kNoValue ? Val{} : r_.map(m.shadow)});
      nodes.push_back(m.call);
    }
    Builder& b = r_.builder();
    const auto guard = b.like(nodes);
    b.set_made_by("join");
    const Node& first = *group.front().call;
    const auto results = first.op->join->build(b, first.attrs, calls);
    for (std::size_t i = 0; i < group.size(); ++i) {
      const Member& m = group[i];
      std::vector<Val> own = results[i];
      if (m.shadow_cast != nullptr) {
        r_.replace(*m.shadow_cast, {own.back()});
        own.pop_back();
      }
      r_.replace(*m.call, own);
    }
  }

  const Program& program_;
  const Parallel choice_;
  Rewriter r_;
  std::vector<std::vector<const Node*>> readers_;     // by value
  std::vector<const Node*> last_reader_;              // by leaf
  std::map<ValueId, ValueId> updated_by_;             // by new value: the leaf
  std::set<const Node*> moved_;                       // with a group
  std::map<const Node*, std::vector<Group>> placed_;  // by the node behind which they are emitted
};

}  // namespace

Program join(const Program& program, const std::function<bool(const OpDef&)>& has_kernel,
             const Parallel& choice) {
  return Join(
             program, has_kernel, [](const Node&) { return std::string(); }, choice)
      .run();
}

std::map<const Node*, std::string> parts_for_streams(const Program& program) {
  constexpr std::int64_t kMostOfPart = kMostStreamedBytes / 4;
  std::map<const Node*, std::string> out;
  std::map<std::string, std::pair<std::int64_t, int>> fill;  // by layer: bytes and number of parts
  for (const Node& node : program.nodes) {
    if (node.origin().phase != Phase::kOptimizer || !node.op->join) continue;
    const std::string layer(layer_of(node.origin().path));
    if (program.type(node.outputs[0]).shape.rank() < 2) {
      out[&node] = "vectors";
      continue;
    }
    std::int64_t bytes = 0;
    for (const ValueId id : node.inputs) {
      const Value& value = program.value(id);
      if (value.leaf != LeafKind::kNone && value.role != Role::kGradient)
        bytes += value.type.bytes();
    }
    auto& [filled, number] = fill[layer];
    if (filled > 0 && filled + bytes > kMostOfPart) {
      filled = 0;
      ++number;
    }
    filled += bytes;
    out[&node] = fmt::format("{}#{}", layer, number);
  }
  return out;
}

Program join_in_streams(const Program& program,
                        const std::function<bool(const OpDef&)>& has_kernel) {
  const auto parts = parts_for_streams(program);
  return join_parts(program, has_kernel, [&](const Node& node) -> std::optional<std::string> {
    const auto found = parts.find(&node);
    return found == parts.end() ? std::string() : found->second;
  });
}

Program join_parts(const Program& program, const std::function<bool(const OpDef&)>& has_kernel,
                   const std::function<std::optional<std::string>(const Node&)>& part_of) {
  return Join(program, has_kernel, part_of, {}).run();
}

Program join(const Program& p, const PassOptions& o) {
  const auto has = [&](const OpDef& op) { return o.has_kernel(op); };
  return streams_states(o) ? join_in_streams(p, has) : join(p, has, o.run.parallel);
}

}  // namespace tracestep
