#include "passes/loss_pairs.h"

#include <optional>

#include "base/indexed.h"
#include "passes/form_passes.h"

namespace tracestep {
namespace {

class Finder {
 public:
  Finder(const Program& program, const Readers& readers)
      : program_(program), readers_(readers), ops_(loss_ops()) {}

  std::vector<LossPair> find() const {
    std::vector<LossPair> out;
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      if (const auto pair = pair_of(static_cast<NodeId>(i))) out.push_back(*pair);
    }
    return out;
  }

 private:
  const Node& node(NodeId id) const { return program_.node(id); }

  // Returns the pair whose gradient is node `id`; nullopt: there is none.
  std::optional<LossPair> pair_of(NodeId id) const {
    const Node& gradient = node(id);
    if (gradient.op != ops_.back()) return std::nullopt;
    const ValueId lse = gradient.inputs[3];
    const NodeId maker = program_.value(lse).producer;
    const bool is_pair = maker != kNoNode && node(maker).op == ops_.front() &&
                         node(maker).outputs[1] == lse && readers_.only(lse) == id &&
                         node(maker).inputs[0] == gradient.inputs[1] &&
                         node(maker).inputs[1] == gradient.inputs[2] &&
                         node(maker).attrs.entries() == gradient.attrs.entries() &&
                         has_same_count(node(maker), gradient);
    if (!is_pair || depends_on_loss(maker, id)) return std::nullopt;
    LossPair out{.loss = maker, .gradient = id, .logits = gradient.inputs[1]};
    use_narrow_logits(out);
    return out;
  }

  // True if the loss and its gradient divide by the same count, or both by none.
  static bool has_same_count(const Node& loss, const Node& gradient) {
    const bool has = loss.inputs.size() > 2;
    return has == (gradient.inputs.size() > 4) && (!has || loss.inputs[2] == gradient.inputs[4]);
  }

  bool depends_on_loss(NodeId loss, NodeId gradient) const {
    std::vector<bool> depends(program_.values.size(), false);
    depends[at(node(loss).outputs[0])] = true;
    for (NodeId id = loss + 1; id < gradient; ++id) {
      for (ValueId input : node(id).inputs) {
        if (!depends[at(input)]) continue;
        for (ValueId output : node(id).outputs) depends[at(output)] = true;
      }
    }
    return depends[at(node(gradient).inputs[0])];
  }

  void use_narrow_logits(LossPair& pair) const {
    const NodeId widening = program_.value(pair.logits).producer;
    const NodeId narrowing = readers_.only(node(pair.gradient).outputs[0]);
    if (widening == kNoNode || narrowing == kNoNode) return;
    if (!node(widening).op->only_converts || !node(narrowing).op->only_converts) return;
    const ValueId narrow = node(widening).inputs[0];
    const DType dtype = program_.type(narrow).dtype;
    if (!is_low_precision(dtype) || program_.type(node(narrowing).outputs[0]).dtype != dtype)
      return;
    pair.logits = narrow;
    pair.narrowing = narrowing;
  }

  const Program& program_;
  const Readers& readers_;
  const std::vector<const OpDef*> ops_;
};

}  // namespace

std::vector<const OpDef*> loss_ops() {
  return parts_of(find_op("cross_entropy_with_grad"),
                  {{DType::kF32, {}}, {DType::kF32, {1, 1}}, {DType::kI64, {1}}});
}

std::vector<LossPair> find_loss_pairs(const Program& program, const Readers& readers) {
  return Finder(program, readers).find();
}

}  // namespace tracestep
