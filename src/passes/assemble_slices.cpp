#include <algorithm>
#include <map>
#include <optional>

#include "analysis/readers.h"
#include "base/indexed.h"
#include "ir/op_def.h"
#include "ir/rewrite.h"
#include "passes/memory_passes.h"

namespace tracestep {
namespace {

// The terms of a sum: slices padded with zeros that together cover an axis, and all others.
struct Covering {
  std::vector<NodeId> pads;    // in order along the axis
  std::vector<ValueId> rest;   // other terms of the sum
  std::vector<NodeId> inside;  // sums that are terms of the sum only
};

class AssembleSlices {
 public:
  explicit AssembleSlices(const Program& program)
      : program_(program), readers_(program), r_(program, "assemble_slices") {
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      if (!node(id).op->is_sum || is_inside(id)) continue;
      if (auto found = covering(id)) {
        replaced_.insert(replaced_.end(), found->inside.begin(), found->inside.end());
        replaced_.insert(replaced_.end(), found->pads.begin(), found->pads.end());
        found_.emplace(id, std::move(*found));
      }
    }
    std::ranges::sort(replaced_);
  }

  Program run() {
    if (found_.empty()) return program_;
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      if (const auto found = found_.find(id); found != found_.end()) {
        emit(node(id), found->second);
      } else if (!std::ranges::binary_search(replaced_, id)) {
        r_.copy(node(id));
      }
    }
    return r_.finish();
  }

 private:
  const Node& node(NodeId id) const { return program_.node(id); }
  NodeId maker(ValueId id) const { return program_.value(id).producer; }
  bool is_pad(NodeId id) const { return id != kNoNode && node(id).op->name == "pad_slice"; }

  bool is_inside(NodeId id) const {
    const NodeId reader = readers_.only(node(id).outputs[0]);
    return reader != kNoNode && node(reader).op->is_sum &&
           node(reader).origin().phase == node(id).origin().phase;
  }

  void add_terms(NodeId id, Covering& out) const {
    for (ValueId input : node(id).inputs) {
      const NodeId of = maker(input);
      if (of != kNoNode && node(of).op->is_sum && is_inside(of)) {
        out.inside.push_back(of);
        add_terms(of, out);
      } else if (is_pad(of) && readers_.only(input) != kNoNode) {
        out.pads.push_back(of);
      } else {
        out.rest.push_back(input);
      }
    }
  }

  std::int64_t axis_of(NodeId pad) const {
    const std::int64_t rank = program_.type(node(pad).inputs[0]).shape.rank();
    return (node(pad).attrs.integer("axis") + rank) % rank;
  }

  // Returns the terms of the sum, if those that are padded slices cover one axis without a gap.
  std::optional<Covering> covering(NodeId sum) const {
    Covering out;
    add_terms(sum, out);
    // With more than one other term, the sum would be taken in another order and have other bits.
    if (out.pads.size() < 2 || out.rest.size() > 1) return std::nullopt;
    const auto start = [&](NodeId pad) { return node(pad).attrs.integer("start"); };
    std::ranges::sort(out.pads, {}, start);
    std::int64_t reached = 0;
    for (NodeId pad : out.pads) {
      const std::int64_t axis = axis_of(out.pads.front());
      if (axis_of(pad) != axis || start(pad) != reached || !may_be_part(node(pad).inputs[0])) {
        return std::nullopt;
      }
      reached += program_.type(node(pad).inputs[0]).shape[static_cast<int>(axis)];
    }
    if (reached != node(out.pads.front()).attrs.integer("size")) return std::nullopt;
    return out;
  }

  // True if a node computes the value for a single reader, and so may write it into an assembly.
  bool may_be_part(ValueId id) const {
    return maker(id) != kNoNode && !readers_.at_end[at(id)] && readers_.only(id) != kNoNode;
  }

  void emit(const Node& sum, const Covering& found) {
    std::vector<Val> parts;
    std::vector<const Node*> pads;
    for (NodeId pad : found.pads) {
      pads.push_back(&node(pad));
      parts.push_back(r_.map(node(pad).inputs[0]));
    }
    Val out;
    {
      const auto guard = r_.builder().like(pads);
      r_.builder().set_made_by("assemble_slices");
      out = r_.builder().call1("assemble", parts, {{"axis", axis_of(found.pads.front())}});
    }
    const auto guard = r_.from(sum);
    for (ValueId term : found.rest) {
      out = r_.builder().call(*sum.op, {out, r_.map(term)}, sum.attrs).front();
    }
    r_.replace(sum, {out});
  }

  const Program& program_;
  const Readers readers_;
  Rewriter r_;
  std::map<NodeId, Covering> found_;  // by the sum
  std::vector<NodeId> replaced_;      // sorted
};

}  // namespace

Program assemble_slices(const Program& program) {
  return AssembleSlices(program).run();
}

}  // namespace tracestep
