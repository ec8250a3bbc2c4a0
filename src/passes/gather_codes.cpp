#include <algorithm>
#include <map>
#include <vector>

#include "analysis/readers.h"
#include "ir/rewrite.h"
#include "ops/collective_sizes.h"
#include "ops/functions.h"
#include "passes/form_passes.h"

namespace tracestep {
namespace {

// The epoch of the nodes that make codes; not 0, since none of them runs again in backward.
constexpr int kOnce = 1;

// A weight that is gathered for one quantization and for nothing else.
struct Weight {
  const Node *quantize = nullptr, *gather = nullptr;
  std::size_t place = 0;  // among all of them
};

class GatherCodes {
 public:
  explicit GatherCodes(const Program& program)
      : program_(program), readers_(program), r_(program, "quantize") {
    for (const Node& node : program.nodes) {
      const bool quantizes = node.op->name == "quantize" || node.op->name == "quantize_delayed";
      const Node* gather = quantizes ? gather_of(node.inputs[0], node) : nullptr;
      if (gather == nullptr || !is_like_the_first(node)) continue;
      const Weight weight{&node, gather, order_.size()};
      order_.push_back(weight);
      quantized_.emplace(&node, weight);
      gathered_.emplace(gather, weight);
      of_transposed_.emplace(node.outputs[1], weight);
    }
  }

  Program run() {
    if (order_.empty()) return program_;
    make_codes();
    for (const Node& node : program_.nodes) {
      if (r_.has(node.outputs[0])) continue;
      if (const auto found = gathered_.find(&node); found != gathered_.end()) {
        gather(found->second);
      } else if (const auto weight = quantized_.find(&node); weight != quantized_.end()) {
        replace(weight->second);
      } else {
        for (ValueId id : node.inputs) transpose_for(node, id);
        r_.copy(node);
      }
    }
    return r_.finish();
  }

 private:
  static constexpr std::size_t kGroup = 3;  // of quantize_parts: codes, scale and largest

  const Node* gather_of(ValueId whole, const Node& reader) const {
    const NodeId maker = program_.value(whole).producer, only = readers_.only(whole);
    if (maker == kNoNode || only == kNoNode || &program_.node(only) != &reader) return nullptr;
    const Node& node = program_.node(maker);
    const bool is_of_weight = node.origin().phase == Phase::kCommunication &&
                              program_.value(whole).role == Role::kWeightCast;
    return node.op->name == "all_gather" && node.inputs.size() == 1 && is_of_weight ? &node
                                                                                    : nullptr;
  }

  // True if one call can quantize this weight and the first one: their dtype and attributes agree.
  bool is_like_the_first(const Node& quantize) const {
    if (order_.empty()) return true;
    const Node& first = *order_[0].quantize;
    return quantize.op == first.op && quantize.attrs.entries() == first.attrs.entries() &&
           program_.type(quantize.inputs[0]).dtype == program_.type(first.inputs[0]).dtype;
  }

  static bool is_delayed(const Node& quantize) { return quantize.inputs.size() > 1; }

  // Emits the codes of all weights at the program's start, before every node that reads one.
  void make_codes() {
    Builder& b = r_.builder();
    std::vector<const Node*> nodes;
    std::vector<Val> parts;
    for (const Weight& weight : order_) {
      copy_part(weight.gather->inputs[0]);
      nodes.push_back(weight.quantize);
      parts.push_back(r_.map(weight.gather->inputs[0]));
    }
    const auto call = [&](const char* op, std::vector<Val> inputs, Attrs attrs = {}) {
      const auto guard = b.like(nodes);
      b.set_made_by("quantize");
      b.set_epoch(kOnce);
      std::vector<Val> out = b.call(find_op(op), std::move(inputs), std::move(attrs));
      for (const Val value : out) b.set_role(value, Role::kWeightCast);
      return out;
    };
    const Val own = call("largest_magnitudes", parts).front();
    const Val now = call("max", {of_all_ranks(own)}, {{"axes", Dims{0}}}).front();
    std::vector<Val> operands{now};
    for (const Weight& weight : order_) {
      operands.push_back(parts[weight.place]);
      operands.push_back(last_of(*weight.quantize));
    }
    Attrs attrs = nodes[0]->attrs;
    if (!is_delayed(*nodes[0])) attrs.set("room", AttrValue(1.0));
    made_ = call("quantize_parts", operands, attrs);
  }

  // Copies the casts that make `id`, the operand of a gather, from a leaf.
  void copy_part(ValueId id) {
    const NodeId maker = program_.value(id).producer;
    if (maker == kNoNode || r_.has(id)) return;
    for (ValueId input : program_.node(maker).inputs) copy_part(input);
    r_.copy(program_.node(maker));
  }

  Val of_all_ranks(Val own) {
    Builder& b = r_.builder();
    const auto path = b.scope("fp8");
    const auto phase = b.phase(Phase::kCommunication);
    const auto pass = b.made_by("quantize");
    const RankGroup group = group_of(order_[0].gather->attrs);
    const Shape all{group.ranks, own.type().count()};
    const Val out = b.call1("all_gather", {own}, in_group(group, {{"shape", all}}));
    b.set_role(out, Role::kWeightCast);
    return out;
  }

  // Returns the weight's largest magnitude in the step before; 0 if scales are not delayed.
  Val last_of(const Node& quantize) {
    if (!is_delayed(quantize)) {
      if (!none_) none_ = ops::fill(r_.builder(), 0.0, {DType::kF32, {1}});
      return none_;
    }
    const Layout& last = program_.value(quantize.inputs[1]).layout;
    return ops::slice(r_.map(last.base), 0, last.offset, last.offset + 1);
  }

  void gather(const Weight& weight) {
    const auto guard = r_.from(*weight.gather);
    const Val whole =
        r_.builder().call1("all_gather", {made_[kGroup * weight.place]}, weight.gather->attrs);
    r_.replace(*weight.gather, {whole});
  }

  void replace(const Weight& weight) {
    const auto made = made_.begin() + static_cast<std::ptrdiff_t>(kGroup * weight.place);
    std::vector<Val> results{r_.map(weight.gather->outputs[0]), Val{}, made[1]};
    if (is_delayed(*weight.quantize)) results.push_back(made[2]);
    r_.replace(*weight.quantize, results);
  }

  // Transposes codes at their first reader, in its phase: backward reads what it gathers itself.
  void transpose_for(const Node& reader, ValueId id) {
    const auto found = of_transposed_.find(id);
    if (found == of_transposed_.end() || r_.has(id)) return;
    const Phase phase = reader.origin().phase;
    const auto guard = r_.from(*found->second.quantize, &phase);
    const Val codes = r_.map(found->second.quantize->outputs[0]);
    const Val out = r_.builder().call1("transpose_codes", {codes});
    r_.replace(id, out);
  }

  const Program& program_;
  const Readers readers_;
  Rewriter r_;
  std::vector<Weight> order_;
  std::map<const Node*, Weight> quantized_, gathered_;
  std::map<ValueId, Weight> of_transposed_;
  Val none_;               // 0
  std::vector<Val> made_;  // by quantize_parts
};

}  // namespace

Program gather_codes(const Program& program) {
  return GatherCodes(program).run();
}

}  // namespace tracestep
