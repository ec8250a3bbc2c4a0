#include "analysis/lanes.h"

#include <algorithm>
#include <deque>

#include "analysis/buffer_plan.h"
#include "base/indexed.h"
#include "ir/op_def.h"

namespace tracestep {
namespace {

constexpr std::size_t kBatchesInFlight = 2;

int attr_of(const Node& node, std::string_view name) {
  return node.op->find_attr(name) == nullptr ? 0 : static_cast<int>(node.attrs.integer(name));
}

class Turns {
 public:
  Turns(const Program& program, const BufferPlan& plan)
      : program_(program),
        plan_(plan),
        out_(program.nodes.size()),
        last_use_(plan.buffers.size(), kNoNode),
        read_beside_(plan.buffers.size(), kNoNode),
        written_beside_(plan.buffers.size(), kNoNode) {}

  std::vector<Turn> run() {
    find_batches();
    find_last_uses();
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      if (!plan_.runs[i]) continue;
      const auto node = static_cast<NodeId>(i);
      if (out_[i].lane == 0) {
        order(node);
      } else {
        order_beside(node);
      }
      last_running_ = node;
    }
    find_ends();
    return std::move(out_);
  }

 private:
  template <class F>
  void each_input(NodeId node, F&& f) const {
    for (ValueId id : program_.node(node).inputs) each(id, f);
  }
  template <class F>
  void each_output(NodeId node, F&& f) const {
    for (ValueId id : program_.node(node).outputs) each(id, f);
  }
  // A view over parts of a block is of the buffers of all its leaves.
  template <class F>
  void each(ValueId id, F&& f) const {
    const int buffer = plan_.buffer_of[at(id)];
    if (buffer >= 0) f(at(buffer));
    for (ValueId leaf : leaves_of(program_, id)) {
      if (const int other = plan_.buffer_of[at(leaf)]; other != buffer) f(at(other));
    }
  }

  // Running nodes next to each other with the same batch, and of one lane, are issued together.
  void find_batches() {
    batch_end_.resize(out_.size());
    NodeId before = kNoNode;
    for (std::size_t i = 0; i < out_.size(); ++i) {
      if (!plan_.runs[i]) continue;
      const auto node = static_cast<NodeId>(i);
      const int batch = attr_of(program_.node(node), "batch");
      out_[i].lane = attr_of(program_.node(node), "lane");
      const bool goes_on = before != kNoNode && batch != 0 &&
                           out_[at(before)].lane == out_[i].lane &&
                           attr_of(program_.node(before), "batch") == batch;
      if (before != kNoNode) out_[at(before)].closes_batch = !goes_on;
      out_[i].opens_batch = !goes_on;
      before = node;
    }
    if (before != kNoNode) out_[at(before)].closes_batch = true;
    NodeId end = kNoNode;
    for (std::size_t i = out_.size(); i-- > 0;) {
      if (out_[i].closes_batch) end = static_cast<NodeId>(i);
      batch_end_[i] = end;
    }
  }

  void find_last_uses() {
    const auto end = static_cast<NodeId>(program_.nodes.size());
    for (NodeId node = 0; node < end; ++node) {
      if (!plan_.runs[at(node)]) continue;
      const auto use = [&](std::size_t buffer) { last_use_[buffer] = node; };
      each_input(node, use);
      each_output(node, use);
    }
    for (const Output& o : program_.outputs)
      each(o.value, [&](std::size_t b) { last_use_[b] = end; });
  }

  void order(NodeId node) {
    NodeId needed = must_end_;
    each_input(node, [&](std::size_t b) {
      needed = std::max(needed, written_beside_[b]);
      if (last_use_[b] == node && is_moved(b)) needed = std::max(needed, read_beside_[b]);
    });
    each_output(node, [&](std::size_t b) {
      needed = std::max({needed, written_beside_[b], read_beside_[b]});
    });
    last_of_lane_0_ = node;
    if (needed == kNoNode || needed <= joined_) return;
    joined_ = batch_end_[at(needed)];
    out_[at(node)].wait = joined_;
  }

  // True for a buffer that a copy on lane 1 reads: it is free when its last reader on lane 0 is
  // done.
  bool is_moved(std::size_t buffer) const {
    const NodeId reader = read_beside_[buffer];
    return reader != kNoNode && plan_.buffers[buffer].first != kNoNode &&
           program_.node(reader).op->kernel_class == KernelClass::kCopy;
  }

  void order_beside(NodeId node) {
    if (out_[at(node)].opens_batch) {
      if (in_flight_.size() == kBatchesInFlight) {
        if (in_flight_.front().frees) must_end_ = in_flight_.front().end;
        in_flight_.pop_front();
      }
      in_flight_.push_back({batch_end_[at(node)], false});
    }
    if (last_of_lane_0_ > forked_) out_[at(node)].wait = forked_ = last_of_lane_0_;
    each_input(node, [&](std::size_t b) {
      read_beside_[b] = node;
      const bool is_leaf = plan_.buffers[b].first == kNoNode;
      if (!is_leaf && last_use_[b] == node) in_flight_.back().frees = true;
    });
    each_output(node, [&](std::size_t b) { written_beside_[b] = node; });
  }

  void find_ends() {
    for (std::size_t i = 0; i < out_.size(); ++i) {
      out_[i].until = out_[i].lane == 0 ? batch_end_[i] : last_running_;
    }
    NodeId done = kNoNode;
    for (std::size_t i = 0; i < out_.size(); ++i) {
      if (!plan_.runs[i] || out_[i].lane != 0 || out_[i].wait == kNoNode) continue;
      for (NodeId node = done + 1; node <= out_[i].wait; ++node) {
        if (out_[at(node)].lane != 0) out_[at(node)].until = static_cast<NodeId>(i);
      }
      done = out_[i].wait;
    }
  }

  struct Batch {
    NodeId end = kNoNode;
    bool frees = false;  // it is the last to read one of its operands
  };

  const Program& program_;
  const BufferPlan& plan_;
  std::vector<Turn> out_;
  std::vector<NodeId> batch_end_;                     // by node
  std::vector<NodeId> last_use_;                      // by buffer
  std::vector<NodeId> read_beside_, written_beside_;  // by buffer: the last node of lane 1
  std::deque<Batch> in_flight_;
  NodeId must_end_ = kNoNode;  // of lane 1: before lane 0 goes on
  NodeId joined_ = kNoNode;    // of lane 1: lane 0 has waited for it
  NodeId forked_ = kNoNode;    // of lane 0: lane 1 has waited for it
  NodeId last_of_lane_0_ = kNoNode, last_running_ = kNoNode;
};

}  // namespace

bool has_lane(const OpDef& op) {
  return op.find_attr("lane") != nullptr;
}

std::vector<Turn> turns_of(const Program& program, const BufferPlan& buffer_plan) {
  return Turns(program, buffer_plan).run();
}

}  // namespace tracestep
