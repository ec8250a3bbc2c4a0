#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "analysis/buffer_plan.h"
#include "analysis/memory_map.h"
#include "analysis/saved.h"
#include "base/indexed.h"
#include "ir/layer_path.h"
#include "ir/rewrite.h"
#include "passes/kernel_passes.h"
#include "passes/memory_passes.h"
#include "passes/pass_rules.h"
#include "passes/recompute.h"

namespace tracestep {
namespace {

constexpr Phase kForwardPhase = Phase::kForward, kBackwardPhase = Phase::kBackward;
constexpr std::int64_t kBeside = 1;  // the lane

bool is_later(const Node& node) {
  return node.origin().phase == Phase::kBackward || node.origin().phase == Phase::kRecompute;
}

// A value that goes to the host's memory and comes back, and the nodes at which it does.
struct Move {
  ValueId value = kNoValue;
  NodeId producer = kNoNode;
  NodeId first_reader = kNoNode;  // in backward
  NodeId back_before = kNoNode;   // the node in front of which it comes back
};

// Returns the values to move, in the order in which they come back.
std::vector<Move> moves_of(const Program& program) {
  // By base. In backward a view may stand before the first node that launches.
  std::vector<NodeId> last_forward(program.values.size(), kNoNode), first_later = last_forward;
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    for (const ValueId id : program.nodes[i].inputs) {
      const std::size_t base = at(program.value(id).layout.base);
      if (!is_later(program.nodes[i])) {
        last_forward[base] = static_cast<NodeId>(i);
      } else if (first_later[base] == kNoNode) {
        first_later[base] = static_cast<NodeId>(i);
      }
    }
  }
  for (const Output& o : program.outputs) {  // stays where it is read
    last_forward[at(program.value(o.value).layout.base)] =
        static_cast<NodeId>(program.nodes.size());
  }
  const std::vector<bool> constant = constant_nodes(program);
  std::vector<Move> out;
  for (const Saved& saved : saved_for_backward(program)) {
    if (saved.readers.empty() || constant[at(saved.producer)]) continue;
    const Value& value = program.value(saved.value);
    if (value.type.shape.empty() || value.role == Role::kWeightCast) continue;
    const NodeId reader = saved.readers.front();
    const Move move{saved.value, saved.producer, reader,
                    std::min(reader, first_later[at(saved.value)])};
    const std::string_view layer = layer_of(program.node(move.first_reader).origin().path);
    const NodeId from = std::max(saved.producer, last_forward[at(saved.value)]);
    bool is_left = false;  // layers run between the last reader in forward and the first after it
    for (NodeId id = from + 1; id < move.first_reader && !is_left; ++id) {
      const std::string_view other = layer_of(program.node(id).origin().path);
      is_left = !other.empty() && other != layer;
    }
    if (is_left) out.push_back(move);
  }
  std::ranges::stable_sort(out, {}, &Move::first_reader);
  return out;
}

class OffloadActivations {
 public:
  OffloadActivations(const Program& program, std::vector<Move> moves)
      : program_(program), moves_(std::move(moves)), r_(program, "offload_activations") {
    for (std::size_t i = 0; i < moves_.size(); ++i) {
      move_of_[moves_[i].value] = i;
      leaves_.push_back(r_.builder().leaf(LeafKind::kState,
                                          std::string(kOffloadedPrefix) + std::to_string(i),
                                          program.type(moves_[i].value), Role::kCache));
      r_.builder().set_memory(leaves_.back(), Memory::kHost);
    }
    stored_.resize(moves_.size());
    back_.resize(moves_.size());
  }

  Program run() {
    std::multimap<NodeId, std::size_t> backs, stores;
    for (std::size_t i = 0; i < moves_.size(); ++i) {
      backs.emplace(moves_[i].back_before, i);
      stores.emplace(moves_[i].producer, i);
    }
    for (std::size_t n = 0; n < program_.nodes.size(); ++n) {
      const auto id = static_cast<NodeId>(n);
      const Node& node = program_.node(id);
      for (auto [move, end] = backs.equal_range(id); move != end; ++move) reload(move->second);
      std::vector<Val> inputs;
      for (const ValueId input : node.inputs) {
        inputs.push_back(is_later(node) ? again(input) : r_.map(input));
      }
      r_.copy(node, inputs);
      for (auto [move, end] = stores.equal_range(id); move != end; ++move) store(move->second);
    }
    return r_.finish();
  }

 private:
  void store(std::size_t index) {
    const Move& move = moves_[index];
    const auto guard = r_.from(program_.node(move.producer), &kForwardPhase);
    stored_[index] =
        r_.builder().call1("offload", {leaves_[index], r_.map(move.value)}, {{"lane", kBeside}});
    r_.builder().update(leaves_[index], stored_[index]);
  }

  void reload(std::size_t index) {
    const auto guard = r_.from(program_.node(moves_[index].first_reader), &kBackwardPhase);
    r_.builder().set_epoch(0);
    back_[index] = r_.builder().call1("reload", {stored_[index]}, {{"lane", kBeside}});
  }

  // Returns what a node of backward reads for `id`: views of a value that came back are made again.
  Val again(ValueId id) {
    const ValueId base = program_.value(id).layout.base;
    const auto found = move_of_.find(base);
    if (found == move_of_.end()) return r_.map(id);
    if (id == base) return back_[found->second];
    Val& view = views_[id];
    if (view) return view;
    const Node& maker = program_.node(program_.value(id).producer);
    if (is_later(maker)) return r_.map(id);
    std::vector<Val> inputs;
    for (const ValueId input : maker.inputs) inputs.push_back(again(input));
    const auto guard = r_.from(maker, &kBackwardPhase);
    return view = r_.builder().call(*maker.op, inputs, maker.attrs).front();
  }

  const Program& program_;
  const std::vector<Move> moves_;
  Rewriter r_;
  std::map<ValueId, std::size_t> move_of_;   // by base
  std::vector<Val> leaves_, stored_, back_;  // by move
  std::map<ValueId, Val> views_;
};

// Lets values come back earlier, each after the value before it, where the bytes alive stay below
// the peak: the copy then runs at the same time as the layer that comes before.
void bring_forward(const Program& program, const DeviceTraits& traits, std::vector<Move>& moves) {
  const Program late = materialize(OffloadActivations(program, moves).run());
  const BufferPlan plan = plan_buffers(late);
  const std::vector<std::int64_t> of_node = live_bytes_by_node(late, plan, traits);
  const std::int64_t peak = of_node.empty() ? 0 : std::ranges::max(of_node);
  // For each node of `program`, the most live bytes at it and at the copies before it.
  std::vector<std::int64_t> live;
  std::int64_t most = 0;
  for (std::size_t i = 0; i < late.nodes.size(); ++i) {
    most = std::max(most, of_node[i]);
    const std::string& pass = late.nodes[i].made_by;
    if (pass == "offload_activations" || pass == "materialize") continue;
    live.push_back(std::exchange(most, 0));
  }
  if (live.size() != program.nodes.size()) return;
  NodeId before = 0;
  for (Move& move : moves) {
    const std::int64_t bytes = program.type(move.value).bytes();
    const NodeId first = move.first_reader;
    while (move.back_before - 1 > std::max(before, move.producer) &&
           is_later(program.node(move.back_before - 1)) &&
           live[at(move.back_before - 1)] + bytes <= peak) {
      live[at(--move.back_before)] += bytes;
    }
    before = first;
  }
}

}  // namespace

Program offload_activations(const Program& program, const DeviceTraits& traits) {
  std::vector<Move> moves = moves_of(program);
  if (moves.empty()) return program;
  bring_forward(program, traits, moves);
  return OffloadActivations(program, moves).run();
}

bool offloads_activations(const PassOptions& o) {
  return has_activations(o.run.offload) && o.context.traits.has_own_memory() && o.trains() &&
         !o.context.has_gradients;
}

Program offload_activations(const Program& p, const PassOptions& o) {
  return offload_activations(p, o.context.traits);
}

}  // namespace tracestep
