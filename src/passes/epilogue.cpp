#include "passes/kernel_passes.h"

#include <algorithm>
#include <map>
#include <optional>

#include "analysis/readers.h"
#include "analysis/view_strides.h"
#include "ir/rewrite.h"
#include "ops/functions.h"
#include "passes/form_passes.h"
#include "passes/memory_passes.h"

namespace tracestep {
namespace {

constexpr const char* kProductAndSum = "matmul_add";
const Type kMatrix{DType::kF32, {1, 1}};

struct Term {
  NodeId product = kNoNode;
  ValueId addend = kNoValue;  // the other term
};

class Epilogue {
 public:
  explicit Epilogue(const Program& program)
      : program_(program),
        readers_(program),
        product_(*parts_of(find_op(kProductAndSum), {kMatrix, kMatrix, kMatrix}).front()),
        r_(program, "epilogue") {
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      if (const auto term = term_of(id)) terms_[id] = *term;
    }
  }

  Program run() {
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      const auto found = terms_.find(id);
      if (found != terms_.end()) {
        emit(node(id), found->second);
      } else {
        r_.copy(node(id));
      }
    }
    return remove_dead_nodes(r_.finish());
  }

 private:
  const Node& node(NodeId id) const { return program_.node(id); }

  // The term of the sum that is a product; of two, the later one.
  std::optional<Term> term_of(NodeId id) const {
    const Node& sum = node(id);
    if (!sum.op->is_sum || sum.inputs.size() != 2) return std::nullopt;
    std::optional<Term> out;
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
      const NodeId product = product_behind(sum.inputs[i]);
      const ValueId addend = sum.inputs[1 - i];
      if (product == kNoNode || !fits(product, addend) || !can_wait(program_, node(product), id))
        continue;
      if (!out || product > out->product) out = Term{product, addend};
    }
    return out;
  }

  // kNoNode: there is none, or something else reads it as well.
  NodeId product_behind(ValueId id) const {
    while (readers_.only(id) != kNoNode) {
      const NodeId maker = program_.value(id).producer;
      if (maker == kNoNode) return kNoNode;
      const Node& n = node(maker);
      if (n.op == &product_) return maker;
      const bool passes_on = n.op->is_view() ? keeps_order(program_, n) : widens(n);
      if (!passes_on) return kNoNode;
      id = n.inputs[0];
    }
    return kNoNode;
  }

  bool widens(const Node& n) const {
    return n.op->only_converts && is_low_precision(program_.type(n.inputs[0]).dtype) &&
           program_.type(n.outputs[0]).dtype == DType::kF32;
  }

  bool fits(NodeId product, ValueId addend) const {
    const Value& c = program_.value(addend);
    return is_contiguous(c.type.shape, c.layout.strides) &&
           c.type.count() == program_.type(node(product).outputs[0]).count();
  }

  void emit(const Node& sum, const Term& term) {
    const Node& product = node(term.product);
    // The sum takes no time of its own: with its origin it would get half of the product's.
    const auto guard = r_.from(product);
    const Shape& shape = program_.type(product.outputs[0]).shape;
    std::vector<Val> operands = r_.inputs(product);
    operands.push_back(ops::reshape(r_.map(term.addend), shape));
    const Val y = r_.builder().call(find_op(kProductAndSum), operands, product.attrs).front();
    r_.replace(sum, {ops::reshape(y, program_.type(sum.outputs[0]).shape)});
  }

  const Program& program_;
  const Readers readers_;
  const OpDef& product_;
  Rewriter r_;
  std::map<NodeId, Term> terms_;  // by sum
};

}  // namespace

Program epilogue(const Program& program, const std::function<bool(const OpDef&)>& has_kernel) {
  return has_kernel(find_op(kProductAndSum)) ? Epilogue(program).run() : program;
}

}  // namespace tracestep
