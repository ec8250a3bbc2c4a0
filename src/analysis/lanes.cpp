#include "analysis/lanes.h"

#include <algorithm>
#include <deque>

#include "analysis/buffer_plan.h"
#include "base/error.h"
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
        last_use_(plan.buffers.size(), kNoNode) {
    for (Beside& beside : beside_) {
      beside.read.assign(plan.buffers.size(), kNoNode);
      beside.written.assign(plan.buffers.size(), kNoNode);
    }
  }

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
  // Calls f for the buffers of a value: a view over parts of a block has those of all its leaves.
  template <class F>
  void each(ValueId id, F&& f) const {
    const int buffer = plan_.buffer_of[at(id)];
    if (buffer >= 0) f(at(buffer));
    for (ValueId leaf : leaves_of(program_, id)) {
      if (const int other = plan_.buffer_of[at(leaf)]; other != buffer) f(at(other));
    }
  }

  // Sets the lanes, and marks the first and the last node of each batch: adjacent nodes that run.
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
    for (int lane = 1; lane < kLaneCount; ++lane) order_behind(node, lane);
    last_of_lane_0_ = node;
  }

  void order_behind(NodeId node, int lane) {
    Beside& beside = beside_[at(lane)];
    NodeId needed = beside.must_end;
    each_input(node, [&](std::size_t b) {
      needed = std::max(needed, beside.written[b]);
      if (last_use_[b] == node && is_moved(b, lane)) needed = std::max(needed, beside.read[b]);
    });
    each_output(node, [&](std::size_t b) {
      needed = std::max({needed, beside.written[b], beside.read[b]});
    });
    if (needed == kNoNode || needed <= beside.joined) return;
    beside.joined = batch_end_[at(needed)];
    out_[at(node)].waits[at(lane)] = beside.joined;
  }

  // True if a copy between two memories, on this lane, reads the buffer, which is no leaf's: the
  // last reader on lane 0 then waits for the copy, so that the buffer can be freed after it.
  bool is_moved(std::size_t buffer, int lane) const {
    const NodeId reader = beside_[at(lane)].read[buffer];
    return reader != kNoNode && plan_.buffers[buffer].first != kNoNode &&
           program_.node(reader).op->kernel_class == KernelClass::kCopy;
  }

  void order_beside(NodeId node) {
    const int lane = out_[at(node)].lane;
    Beside& own = beside_[at(lane)];
    if (out_[at(node)].opens_batch) {
      if (own.in_flight.size() == kBatchesInFlight) {
        if (own.in_flight.front().frees) own.must_end = own.in_flight.front().end;
        own.in_flight.pop_front();
      }
      own.in_flight.push_back({batch_end_[at(node)], false});
    }
    if (last_of_lane_0_ > own.forked) out_[at(node)].waits[0] = own.forked = last_of_lane_0_;
    each_input(node, [&](std::size_t b) {
      check_met(node, b);
      own.read[b] = node;
      const bool is_leaf = plan_.buffers[b].first == kNoNode;
      if (!is_leaf && last_use_[b] == node) own.in_flight.back().frees = true;
    });
    each_output(node, [&](std::size_t b) {
      check_met(node, b);
      own.written[b] = node;
    });
  }

  // Checks that lane 0 has waited for all that lanes other than the node's did with the buffer.
  void check_met(NodeId node, std::size_t buffer) const {
    for (int lane = 1; lane < kLaneCount; ++lane) {
      const Beside& other = beside_[at(lane)];
      if (lane == out_[at(node)].lane) continue;
      TRACESTEP_CHECK(std::max(other.written[buffer], other.read[buffer]) <= other.joined,
                      "node {} of lane {} uses what lane {} does, and lane 0 has not waited", node,
                      out_[at(node)].lane, lane);
    }
  }

  void find_ends() {
    for (std::size_t i = 0; i < out_.size(); ++i) {
      out_[i].until = out_[i].lane == 0 ? batch_end_[i] : last_running_;
    }
    for (int lane = 1; lane < kLaneCount; ++lane) {
      NodeId done = kNoNode;
      for (std::size_t i = 0; i < out_.size(); ++i) {
        const NodeId wait = out_[i].waits[at(lane)];
        if (!plan_.runs[i] || out_[i].lane != 0 || wait == kNoNode) continue;
        for (NodeId node = done + 1; node <= wait; ++node) {
          if (out_[at(node)].lane == lane) out_[at(node)].until = static_cast<NodeId>(i);
        }
        done = wait;
      }
    }
  }

  struct Batch {
    NodeId end = kNoNode;
    bool frees = false;  // it is the last to read one of its operands
  };

  // The state of lane 1 or 2 while turns_of() goes through the nodes in order.
  struct Beside {
    std::vector<NodeId> read, written;  // by buffer: the last node that does
    std::deque<Batch> in_flight = {};
    NodeId must_end = kNoNode;  // before lane 0 goes on
    NodeId joined = kNoNode;    // lane 0 has waited for it
    NodeId forked = kNoNode;    // of lane 0: it has waited for that
  };

  const Program& program_;
  const BufferPlan& plan_;
  std::vector<Turn> out_;
  std::vector<NodeId> batch_end_;          // by node
  std::vector<NodeId> last_use_;           // by buffer
  std::array<Beside, kLaneCount> beside_;  // by lane; lane 0 has none
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
