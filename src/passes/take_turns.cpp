#include <algorithm>
#include <utility>
#include <vector>

#include "analysis/lanes.h"
#include "base/indexed.h"
#include "ir/rewrite.h"
#include "passes/parallel_passes.h"

namespace tracestep {
namespace {

// True for a collective that is in no batch.
bool is_alone(const Node& node) {
  return node.op->kernel_class == KernelClass::kCollective && has_lane(*node.op) &&
         node.attrs.integer("batch") == 0;
}

// Copies nodes in another order.
class Order {
 public:
  explicit Order(const Program& program) : program_(program), r_(program, "overlap") {}

  const Program& program() const { return program_; }
  Program finish() { return r_.finish(); }

  // True if everything that the node reads has been copied.
  bool is_ready(NodeId id) const {
    return std::ranges::all_of(program_.node(id).inputs, [&](ValueId v) { return r_.has(v); });
  }
  void copy(NodeId id) { r_.copy(program_.node(id)); }
  void copy_beside(NodeId id, bool is_beside) {
    const Node& node = program_.node(id);
    Attrs attrs = node.attrs;
    attrs.set("lane", std::int64_t{is_beside});
    const auto guard = r_.builder().like(node);
    r_.replace(node, r_.builder().call(*node.op, r_.inputs(node), std::move(attrs)));
  }

 private:
  const Program& program_;
  Rewriter r_;
};

// The nodes between two collectives, in the order of the program.
class Stretch {
 public:
  explicit Stretch(Order& order) : order_(order) {}

  void add(NodeId id) { nodes_.push_back(id); }

  // Copies the nodes that make the operands of `collective`, the collective, and then the others.
  void end_with(NodeId collective) {
    const Program& program = order_.program();
    std::vector<bool> is_needed(nodes_.size(), false);
    const auto need = [&](auto&& self, NodeId reader) -> void {
      for (const ValueId v : program.node(reader).inputs) {
        const auto found = std::ranges::lower_bound(nodes_, program.value(v).producer);
        if (found == nodes_.end() || *found != program.value(v).producer) continue;
        const auto i = static_cast<std::size_t>(found - nodes_.begin());
        if (is_needed[i]) continue;
        is_needed[i] = true;
        self(self, nodes_[i]);
      }
    };
    need(need, collective);
    bool has_others = false;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (is_needed[i]) order_.copy(nodes_[i]);
      has_others = has_others || (!is_needed[i] && launches(program, program.node(nodes_[i])));
    }
    order_.copy_beside(collective, has_others);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!is_needed[i]) order_.copy(nodes_[i]);
    }
    nodes_.clear();
  }

  void end() {
    for (const NodeId id : nodes_) order_.copy(id);
    nodes_.clear();
  }

 private:
  Order& order_;
  std::vector<NodeId> nodes_;  // ascending
};

// Copies the nodes [begin, middle) and [middle, end) of two micro-batches in turns, each as far as
// its next collective. The second one may read what the first one makes.
void copy_in_turns(Order& order, NodeId begin, NodeId middle, NodeId end) {
  NodeId first = begin, second = middle;
  bool is_first = true;
  while (first < middle || second < end) {
    const bool can_go_on = second < end && order.is_ready(second);
    const bool takes_first = first < middle && (is_first || !can_go_on);
    const NodeId id = takes_first ? first++ : second++;
    if (!is_alone(order.program().node(id))) {
      order.copy(id);
      continue;
    }
    order.copy_beside(id, true);
    is_first = !takes_first;
  }
}

}  // namespace

Program beside_products(const Program& program) {
  Order order(program);
  Stretch stretch(order);
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    if (is_alone(program.nodes[i])) {
      stretch.end_with(id);
    } else {
      stretch.add(id);
    }
  }
  stretch.end();
  return order.finish();
}

Program take_turns(const Program& program, std::span<const std::size_t> ends) {
  Order order(program);
  std::size_t done = 0;
  for (std::size_t i = 0; i + 1 < ends.size(); i += 2) {
    copy_in_turns(order, static_cast<NodeId>(done), static_cast<NodeId>(ends[i]),
                  static_cast<NodeId>(ends[i + 1]));
    done = ends[i + 1];
  }
  for (; done < program.nodes.size(); ++done) order.copy(static_cast<NodeId>(done));
  return order.finish();
}

}  // namespace tracestep
