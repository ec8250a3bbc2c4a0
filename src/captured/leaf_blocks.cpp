// Places weights of a captured module that multiply the same input side by side in memory, as the
// Transformer's own are, so that the pass `merge` can join their products.
#include <map>
#include <tuple>

#include "captured/forward_program.h"
#include "ir/op_def.h"

namespace tracestep {
namespace {

constexpr std::size_t kWeight = 1, kBias = 2;

class Beside {
 public:
  explicit Beside(Program& program) : program_(program), reads_(program.values.size(), 0) {
    for (const Node& node : program.nodes) {
      for (ValueId id : node.inputs) ++reads_[at(id)];
    }
  }

  void run() {
    // A group is of one part of the model: a block's attention and its MLP stay two groups where
    // both read one input, since what follows the products of each is its own.
    std::map<std::tuple<ValueId, std::string, std::string>, std::vector<const Node*>> groups;
    for (const Node& node : program_.nodes) {
      if (!is_alone(node)) continue;
      const std::string& path = node.origin().path;
      const std::size_t end = path.rfind('.');
      const std::string part = end == path.npos ? "" : path.substr(0, end);
      groups[{node.inputs[0], node.op->name, part}].push_back(&node);
    }
    for (const auto& [key, nodes] : groups) {
      if (nodes.size() < 2) continue;
      place(nodes, kWeight);
      if (nodes.front()->inputs.size() > kBias) place(nodes, kBias);
    }
  }

 private:
  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }

  bool is_own(ValueId id) const {
    const Value& value = program_.value(id);
    return value.leaf == LeafKind::kParameter && value.part.block.empty() && reads_[at(id)] == 1;
  }

  // True for x · weightᵀ, with a bias or without, whose weight and bias nothing else reads.
  bool is_alone(const Node& node) const {
    return node.op->product && node.op->kernel_class == KernelClass::kGemm &&
           node.attrs.flag("transpose_b") && !node.attrs.flag("transpose_a") &&
           program_.type(node.inputs[kWeight]).shape.rank() == 2 && is_own(node.inputs[kWeight]) &&
           (node.inputs.size() <= kBias || is_own(node.inputs[kBias]));
  }

  void place(const std::vector<const Node*>& nodes, std::size_t operand) {
    const std::string name = program_.value(nodes.front()->inputs[operand]).name + ".and_beside";
    std::int64_t all = 0, before = 0;
    for (const Node* node : nodes) all += program_.type(node->inputs[operand]).count();
    for (const Node* node : nodes) {
      Value& leaf = program_.values[at(node->inputs[operand])];
      leaf.part = {name, before, all};
      before += leaf.type.count();
    }
  }

  Program& program_;
  std::vector<int> reads_;
};

}  // namespace

void place_side_by_side(Program& program) {
  Beside(program).run();
}

}  // namespace tracestep
