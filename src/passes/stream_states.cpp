// Moments and master copies in the host's memory pass through buffers of the device, one tensor
// after another, while other tensors are updated. Other passes choose what lies in the host's
// memory (offload.cpp) and what is updated in one call (join_in_streams).
#include <algorithm>
#include <map>
#include <vector>

#include "analysis/readers.h"
#include "base/indexed.h"
#include "ir/rewrite.h"
#include "passes/pass_rules.h"
#include "passes/update_passes.h"

namespace tracestep {
namespace {

constexpr std::int64_t kIn = 1, kOut = 2;  // lanes
constexpr std::size_t kAhead = 2;          // updates whose operands are there or on their way

// An update, and the leaves in the host's memory of which it reads copies on the device.
struct Stream {
  NodeId node = kNoNode;
  std::vector<ValueId> leaves = {};  // that it reads, in the host's memory
};

class StreamStates {
 public:
  StreamStates(const Program& program, std::int64_t least, std::int64_t most)
      : program_(program),
        least_(least),
        most_(most),
        readers_(program),
        r_(program, "stream_states") {
    for (const Update& u : program.updates) updated_by_[u.value] = u.leaf;
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      const Stream stream = stream_of(static_cast<NodeId>(i));
      if (!stream.leaves.empty()) streams_.push_back(stream);
    }
  }

  Program run() {
    if (streams_.empty()) return program_;
    const NodeId begin = first_place();
    std::size_t next = 0;
    for (NodeId id = 0; id < static_cast<NodeId>(program_.nodes.size()); ++id) {
      for (std::size_t i = 0; id == begin && i < std::min(kAhead, streams_.size()); ++i)
        bring_in(i);
      if (next < streams_.size() && streams_[next].node == id) {
        update(next);
        if (next + kAhead < streams_.size()) bring_in(next + kAhead);
        ++next;
      } else {
        r_.copy(program_.node(id));
      }
    }
    return r_.finish();
  }

 private:
  // Returns the node with the leaves to stream for it: none if it is no update or uses the bus.
  Stream stream_of(NodeId id) const {
    const Node& node = program_.node(id);
    if (node.op->kernel_class != KernelClass::kOptimizer ||
        node.origin().phase != Phase::kOptimizer) {
      return {};
    }
    Stream out{id};
    std::int64_t bytes = 0;
    for (const ValueId input : node.inputs) {
      const Value& value = program_.value(input);
      if (value.memory != Memory::kHost || value.type.bytes() < least_) continue;
      if (value.leaf == LeafKind::kNone || readers_.only(input) != id) return {};
      bytes += value.type.bytes();
      out.leaves.push_back(input);
    }
    if (bytes > most_ || !are_updates_alone(node)) return {};
    return out;
  }

  // True if no node reads those results of the update that become leaves in the host's memory.
  bool are_updates_alone(const Node& node) const {
    return std::ranges::all_of(
        node.outputs, [&](ValueId id) { return !is_moved(id) || readers_.nodes[at(id)].empty(); });
  }

  // True if the result becomes the new value of a leaf in host memory that is streamed.
  bool is_moved(ValueId result) const {
    const auto leaf = updated_by_.find(result);
    if (leaf == updated_by_.end()) return false;
    const Value& value = program_.value(leaf->second);
    return value.memory == Memory::kHost && value.type.bytes() >= least_;
  }

  // Returns the node before which the first operands come in: after backward, the first node of the
  // optimizer, such as the gradients' norm; inside backward, the update itself.
  NodeId first_place() const {
    NodeId out = streams_.front().node;
    while (out > 0 && program_.node(out - 1).origin().phase == Phase::kOptimizer) --out;
    return out;
  }

  static Attrs on_lane(std::int64_t lane, std::size_t index) {
    return {{"lane", lane}, {"batch", static_cast<std::int64_t>(index) + 1}};
  }

  void bring_in(std::size_t index) {
    const Stream& stream = streams_[index];
    const auto guard = r_.from(program_.node(stream.node));
    for (const ValueId leaf : stream.leaves)
      here_[leaf] = r_.builder().call1("reload", {r_.map(leaf)}, on_lane(kIn, index));
  }

  void update(std::size_t index) {
    const Node& node = program_.node(streams_[index].node);
    std::vector<Val> operands;
    for (const ValueId input : node.inputs) {
      const auto found = here_.find(input);
      operands.push_back(found == here_.end() ? r_.map(input) : found->second);
    }
    Attrs attrs = node.attrs;
    if (attrs.find("lane") != nullptr) attrs.set("lane", std::int64_t{0});
    const auto guard = r_.from(node);
    std::vector<Val> results = r_.builder().call(*node.op, operands, std::move(attrs));
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (!is_moved(node.outputs[i])) continue;
      const Val place = r_.map(updated_by_.at(node.outputs[i]));
      results[i] = r_.builder().call1("offload", {place, results[i]}, on_lane(kOut, index));
    }
    r_.replace(node, results);
  }

  const Program& program_;
  const std::int64_t least_, most_;
  const Readers readers_;
  Rewriter r_;
  std::map<ValueId, ValueId> updated_by_;  // by new value: the leaf
  std::vector<Stream> streams_;            // in the order of the program
  std::map<ValueId, Val> here_;            // by leaf: its copy on the device
};

}  // namespace

Program stream_states(const Program& program, std::int64_t least, std::int64_t most) {
  return StreamStates(program, least, most).run();
}

// True if states are streamed; not among several ranks, whose lanes are for collectives.
bool streams_states(const PassOptions& o) {
  const bool is_on = o.run.compile_passes ? o.names("stream_states") : has_arena(o.run.executor);
  return is_on && !o.context.disabled.contains("stream_states") && offloads(o) && o.updates() &&
         o.context.traits.has_lanes() && !o.run.parallel.is_on();
}

Program stream_states(const Program& p, const PassOptions&) {
  return stream_states(p);
}

}  // namespace tracestep
