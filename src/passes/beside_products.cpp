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

class BesideProducts {
 public:
  explicit BesideProducts(const Program& program) : program_(program), r_(program, "overlap") {}

  Program run() {
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      if (is_alone(program_.nodes[i])) {
        end_with(id);
      } else {
        stretch_.push_back(id);
      }
    }
    for (const NodeId id : stretch_) copy(id);
    return r_.finish();
  }

 private:
  // Copies the nodes since the last collective (`stretch_`): first those that make operands of
  // `collective`, then `collective`, and then the others.
  void end_with(NodeId collective) {
    std::vector<bool> is_needed(stretch_.size(), false);
    const auto need = [&](auto&& self, NodeId reader) -> void {
      for (const ValueId v : program_.node(reader).inputs) {
        const auto found = std::ranges::lower_bound(stretch_, program_.value(v).producer);
        if (found == stretch_.end() || *found != program_.value(v).producer) continue;
        const auto i = static_cast<std::size_t>(found - stretch_.begin());
        if (is_needed[i]) continue;
        is_needed[i] = true;
        self(self, stretch_[i]);
      }
    };
    need(need, collective);
    bool has_others = false;
    for (std::size_t i = 0; i < stretch_.size(); ++i) {
      if (is_needed[i]) copy(stretch_[i]);
      has_others = has_others || (!is_needed[i] && launches(program_, program_.node(stretch_[i])));
    }
    copy_on_lane(collective, has_others);
    for (std::size_t i = 0; i < stretch_.size(); ++i) {
      if (!is_needed[i]) copy(stretch_[i]);
    }
    stretch_.clear();
  }

  void copy(NodeId id) { r_.copy(program_.node(id)); }
  void copy_on_lane(NodeId id, bool is_beside) {
    const Node& node = program_.node(id);
    Attrs attrs = node.attrs;
    attrs.set("lane", std::int64_t{is_beside});
    const auto guard = r_.builder().like(node);
    r_.replace(node, r_.builder().call(*node.op, r_.inputs(node), std::move(attrs)));
  }

  const Program& program_;
  Rewriter r_;
  std::vector<NodeId> stretch_;  // Nodes since the last collective, ascending.
};

}  // namespace

Program beside_products(const Program& program) {
  return BesideProducts(program).run();
}

}  // namespace tracestep
