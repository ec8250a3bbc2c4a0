#include "passes/recompute_choices.h"

#include <algorithm>
#include <limits>

#include "analysis/min_cut.h"
#include "analysis/modelled_time.h"
#include "analysis/saved.h"
#include "base/indexed.h"
#include "ir/op_def.h"
#include "passes/recompute.h"

namespace tracestep {
namespace {

constexpr double kSame = 1e-9;  // relative

bool is_forward(const Node& node) {
  return node.origin().phase == Phase::kForward && node.epoch == 0;
}

// Returns the bytes of leaves in the device's memory, since a budget is for that memory alone.
std::int64_t leaf_bytes(const Program& program) {
  std::int64_t out = 0;
  for (ValueId id : program.leaves) {
    if (program.value(id).memory == Memory::kDevice) out += program.type(id).bytes();
  }
  return out;
}

// Returns, for each base value, the least bytes of keeping it. If only a view of it is read, a
// later pass may keep a copy of the view instead.
std::vector<std::int64_t> least_kept_bytes(const Program& program) {
  std::vector<std::int64_t> out(program.values.size(), std::numeric_limits<std::int64_t>::max());
  for (const Value& value : program.values) {
    std::int64_t& least = out[at(value.layout.base)];
    least = std::min(least, value.type.bytes());
  }
  return out;
}

}  // namespace

std::int64_t held_when_backward_begins(const Program& program) {
  const std::vector<int> blocks = parts_of(program, Recomputation::blocks());
  const std::vector<std::int64_t> kept_bytes = least_kept_bytes(program);
  std::int64_t out = leaf_bytes(program);
  for (const Saved& saved : saved_for_backward(program)) {
    if (blocks[at(saved.producer)] >= 0) out += kept_bytes[at(saved.value)];
  }
  return out;
}

RecomputeChoices::RecomputeChoices(const Program& program, DeviceKind kind, bool fuses)
    : program_(program),
      us_(modelled_us_by_node(program, kind, fuses)),
      constant_(constant_nodes(program)),
      blocks_(parts_of(program, Recomputation::blocks())),
      saved_(program.values.size(), false),
      readers_(program.values.size()),
      bytes_(program.values.size(), 0.0) {
  for (int block : blocks_) block_count_ = std::max(block_count_, block + 1);
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    const Node& node = program.nodes[i];
    if (!is_forward(node) || makes_views(program, node)) continue;
    for (ValueId id : node.inputs) {
      readers_[at(program.value(id).layout.base)].push_back(static_cast<NodeId>(i));
    }
  }
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    if (may_run_again(static_cast<NodeId>(i))) nodes_.push_back(static_cast<NodeId>(i));
  }
  find_kept();
}

bool RecomputeChoices::may_run_again(NodeId node) const {
  return is_forward(program_.node(node)) && !constant_[at(node)] &&
         !makes_views(program_, program_.node(node));
}

void RecomputeChoices::find_kept() {
  for (const Saved& saved : saved_for_backward(program_)) {
    if (constant_[at(saved.producer)]) continue;
    saved_[at(saved.value)] = true;
    if (makers_.empty() || makers_.back() != saved.producer) makers_.push_back(saved.producer);
  }
  for (NodeId id : nodes_) {
    for (ValueId output : program_.node(id).outputs) {
      const bool crosses = std::ranges::any_of(
          readers_[at(output)], [&](NodeId reader) { return block_of(reader) != block_of(id); });
      if (!crosses) bytes_[at(output)] = static_cast<double>(program_.type(output).bytes());
    }
  }
}

// Returns the moment when backward begins: everything that is kept is alive, for backward and
// for recomputed nodes.
RecomputeChoices::Moment RecomputeChoices::beginning_of_backward() const {
  const std::vector<std::int64_t> bytes = least_kept_bytes(program_);
  Moment out{.bytes = Weights(program_.values.size(), 0.0)};
  out.fixed_bytes = leaf_bytes(program_);
  for (const Saved& saved : saved_for_backward(program_)) {
    if (!saved_[at(saved.value)]) out.fixed_bytes += bytes[at(saved.value)];
  }
  for (NodeId node : nodes_) {
    for (ValueId id : program_.node(node).outputs) {
      out.bytes[at(id)] = static_cast<double>(bytes[at(id)]);
    }
  }
  return out;
}

// Returns, by base value, the last optimizer node that reads it, which ends a gradient's life.
std::vector<NodeId> RecomputeChoices::update_nodes() const {
  std::vector<NodeId> out(program_.values.size(), kNoNode);
  for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
    const Node& node = program_.nodes[i];
    if (node.origin().phase != Phase::kOptimizer) continue;
    for (ValueId id : node.inputs) out[at(program_.value(id).layout.base)] = static_cast<NodeId>(i);
  }
  return out;
}

// Finds backward's fullest moment, by what no later pass changes: leaves, gradients, saved values.
RecomputeChoices::Moment RecomputeChoices::fullest_moment() const {
  const std::size_t end = program_.nodes.size();
  const std::vector<std::int64_t> bytes = least_kept_bytes(program_);
  std::vector<std::int64_t> change(end + 1, 0);
  std::int64_t live = leaf_bytes(program_);
  const std::vector<NodeId> update_of = update_nodes();
  for (std::size_t i = 0; i < end; ++i) {
    for (ValueId id : program_.nodes[i].outputs) {
      const Value& value = program_.value(id);
      const bool is_gradient = value.role == Role::kGradient && value.layout.base == id;
      if (!is_gradient) continue;
      change[i] += value.type.bytes();
      if (const NodeId update = update_of[at(id)]; update != kNoNode) {
        change[at(update) + 1] -= value.type.bytes();
      }
    }
  }
  const std::vector<Saved> all = saved_for_backward(program_);
  for (const Saved& saved : all) {
    change[at(saved.producer)] += bytes[at(saved.value)];
    if (!saved.readers.empty()) change[at(saved.readers.back()) + 1] -= bytes[at(saved.value)];
  }
  Moment out{.bytes = Weights(program_.values.size(), 0.0)};
  NodeId moment = kNoNode;
  for (std::size_t i = 0; i < end; ++i) {
    live += change[i];
    const bool is_backward = program_.nodes[i].origin().phase == Phase::kBackward;
    if (!is_backward || live <= out.fixed_bytes) continue;
    out.fixed_bytes = live;
    moment = static_cast<NodeId>(i);
  }
  for (const Saved& saved : all) {
    const bool is_alive = !saved.readers.empty() && saved.readers.back() >= moment;
    if (!saved_[at(saved.value)] || !is_alive) continue;
    out.bytes[at(saved.value)] = static_cast<double>(bytes[at(saved.value)]);
    out.fixed_bytes -= bytes[at(saved.value)];
  }
  return out;
}

// Finds the choice by a least cut: nodes that run again are on the sink's side and cost their time.
// A value costs its bytes if its maker does not run again, but backward or such a node reads it.
RecomputeChoices::Choice RecomputeChoices::cheapest(double price, const Weights& weights) const {
  MinCut graph;
  std::vector<int> place(program_.nodes.size(), -1);
  for (NodeId id : nodes_) {
    place[at(id)] = graph.add_node();
    graph.add_edge(MinCut::kSource, place[at(id)], us_[at(id)]);
  }
  for (NodeId node : nodes_) {
    for (ValueId id : program_.node(node).outputs) {
      if (weights[at(id)] <= 0.0 || price <= 0.0) continue;
      const double cost = price * weights[at(id)];
      if (saved_[at(id)]) {
        graph.add_edge(place[at(node)], MinCut::kSink, cost);
      } else if (!readers_[at(id)].empty()) {
        const int kept = graph.add_node();
        graph.add_edge(place[at(node)], kept, cost);
        for (NodeId reader : readers_[at(id)]) {
          graph.add_edge(kept, place[at(reader)], MinCut::kInfinite);
        }
      }
    }
  }
  const std::vector<bool> sink_side = graph.sink_side();
  Choice out{std::vector<bool>(program_.nodes.size(), false)};
  for (NodeId node : nodes_) {
    out.again[at(node)] = sink_side[at(place[at(node)])];
    if (out.again[at(node)]) out.us += us_[at(node)];
  }
  out.kept_bytes = kept_bytes(out.again, weights);
  return out;
}

std::vector<NodeId> RecomputeChoices::handing_on(int group) const {
  std::vector<NodeId> out;
  const auto has_reader_behind = [&](NodeId id) {
    return std::ranges::any_of(readers_[at(program_.node(id).outputs[0])],
                               [&](NodeId reader) { return block_of(reader) > block_of(id); });
  };
  for (NodeId id : nodes_) {
    const Node& node = program_.node(id);
    const int block = block_of(id);
    const bool is_looked_up = block < 0 && node.op->kernel_class == KernelClass::kGather;
    const bool is_added_up = block >= 0 && block % group != group - 1 && node.op->is_sum;
    if ((!is_looked_up && !is_added_up) || !has_reader_behind(id)) continue;
    out.push_back(id);
    for (ValueId term : node.inputs) {
      const NodeId maker = program_.value(program_.value(term).layout.base).producer;
      const bool is_cast = maker != kNoNode && program_.node(maker).op->only_converts &&
                           may_run_again(maker) && block_of(maker) == block;
      if (is_cast) out.push_back(maker);
    }
  }
  return out;
}

std::vector<bool> RecomputeChoices::inside(const Recomputation& parts) const {
  const std::vector<int> part_of = parts_of(program_, parts);
  std::vector<bool> out(program_.nodes.size(), false);
  for (NodeId node : nodes_) {
    const int part = part_of[at(node)];
    out[at(node)] = part >= 0 && std::ranges::all_of(program_.node(node).outputs, [&](ValueId id) {
                      return std::ranges::all_of(readers_[at(id)], [&](NodeId reader) {
                        return part_of[at(reader)] == part;
                      });
                    });
  }
  return out;
}

// Adds up the weights of kept values: those that are saved, and operands of what runs again.
double RecomputeChoices::kept_bytes(const std::vector<bool>& again, const Weights& weights) const {
  double out = 0.0;
  for (NodeId node : nodes_) {
    if (again[at(node)]) continue;
    for (ValueId id : program_.node(node).outputs) {
      const bool is_needed = saved_[at(id)] || std::ranges::any_of(readers_[at(id)], [&](NodeId n) {
                               return static_cast<bool>(again[at(n)]);
                             });
      if (is_needed) out += weights[at(id)];
    }
  }
  return out;
}

std::vector<RecomputeChoices::Choice> RecomputeChoices::hull(const Weights& weights) const {
  std::vector<Choice> out{cheapest(0.0, weights)};
  const Choice last = cheapest(MinCut::kInfinite, weights);
  const auto between = [&](auto&& self, const Choice& from, const Choice& to) -> void {
    const double bytes = from.kept_bytes - to.kept_bytes, us = to.us - from.us;
    if (bytes <= 0.0 || us <= 0.0) return;
    const double price = us / bytes;
    Choice middle = cheapest(price, weights);
    const double value = middle.us + price * middle.kept_bytes;
    if (value > (from.us + price * from.kept_bytes) * (1.0 - kSame)) return;
    self(self, from, middle);
    out.push_back(middle);
    self(self, middle, to);
  };
  between(between, out.front(), last);
  if (last.us > out.back().us) out.push_back(last);
  return out;
}

const std::vector<RecomputeChoices::Choice>& RecomputeChoices::frontier() {
  if (frontier_.empty()) frontier_ = hull(bytes_);
  return frontier_;
}

RecomputeChoices::Choice RecomputeChoices::thinnest() const {
  constexpr double kUsPerByte = 1e-4;  // a tenth of a second for a GiB; larger ones drown all times
  return cheapest(kUsPerByte, bytes_);
}

double RecomputeChoices::least_us(std::int64_t budget_bytes) {
  if (bounds_.empty()) {
    for (const Moment& moment : {beginning_of_backward(), fullest_moment()}) {
      bounds_.push_back({moment.fixed_bytes, hull(moment.bytes)});
    }
  }
  const auto least_of = [&](const Bound& bound) {
    const auto kept = static_cast<double>(budget_bytes - bound.fixed_bytes);
    const std::vector<Choice>& all = bound.hull;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].kept_bytes > kept) continue;
      if (i == 0) return 0.0;
      // Between two of these no choice lies below the straight line.
      const Choice &a = all[i - 1], &b = all[i];
      return a.us + (b.us - a.us) * (a.kept_bytes - kept) / (a.kept_bytes - b.kept_bytes);
    }
    return std::numeric_limits<double>::infinity();
  };
  return std::max(least_of(bounds_[0]), least_of(bounds_[1]));
}

}  // namespace tracestep
