#include "passes/kernel_passes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "analysis/places_in_copies.h"
#include "analysis/readers.h"
#include "analysis/view_strides.h"
#include "ir/rewrite.h"
#include "ops/functions.h"
#include "passes/form_passes.h"
#include "passes/memory_passes.h"
#include "passes/pass_rules.h"

namespace tracestep {
namespace {

constexpr const char *kProductAndSum = "matmul_add", *kCodesAndSum = "scaled_matmul_add",
                     *kRowsAndSum = "scatter_add_to", *kRows = "scatter_add";
const Type kMatrix{DType::kF32, {1, 1}};

struct Term {
  NodeId maker = kNoNode;     // a product, or rows at their indices
  ValueId addend = kNoValue;  // the other term
  NodeId widening = kNoNode;  // of the addend, which the sum alone reads
  NodeId waiting = kNoNode;   // a product that makes the addend and comes just before its reader
};

class Epilogue {
 public:
  Epilogue(const Program& program, const std::function<bool(const OpDef&)>& has_kernel,
           HeadGradient head)
      : program_(program),
        adds_to_rows_(has_kernel(find_op(kRowsAndSum))),
        adds_to_codes_(has_kernel(find_op(kCodesAndSum))),
        head_(head),
        readers_(program),
        product_(*parts_of(find_op(kProductAndSum), {kMatrix, kMatrix, kMatrix}).front()),
        of_codes_(find_op("scaled_matmul")),
        r_(program, "epilogue") {
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      if (const auto rows = rows_of(id)) {
        rows_[id] = *rows;
        if (rows->waiting != kNoNode) {
          left_out_.insert(rows->waiting);
          if (rows->widening != kNoNode) left_out_.insert(rows->widening);
        }
      } else if (const auto term = term_of(id)) {
        terms_[id] = *term;
      }
    }
  }

  Program run() {
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      if (left_out_.contains(id)) continue;
      if (const auto found = terms_.find(id); found != terms_.end()) {
        emit(node(id), found->second);
      } else if (const auto rows = rows_.find(id); rows != rows_.end()) {
        emit_rows(node(id), rows->second);
      } else {
        r_.copy(node(id));
      }
    }
    return remove_dead_nodes(r_.finish());
  }

 private:
  const Node& node(NodeId id) const { return program_.node(id); }

  // Returns the term of sum `id` that adds rows at indices and that only the sum reads. Its addend
  // is the sum's other term, before a cast that widens it. nullopt: there is no such term.
  std::optional<Term> rows_of(NodeId id) const {
    const Node& sum = node(id);
    if (!adds_to_rows_ || !sum.op->is_sum || sum.inputs.size() != 2) return std::nullopt;
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
      const NodeId maker = program_.value(sum.inputs[i]).producer;
      if (maker == kNoNode || node(maker).op->name != kRows || readers_.only(sum.inputs[i]) != id ||
          !can_wait(program_, node(maker), id)) {
        continue;
      }
      ValueId addend = sum.inputs[1 - i];
      const NodeId cast = program_.value(addend).producer;
      const bool was_widened = cast != kNoNode && widens(node(cast)) &&
                               readers_.only(addend) == id && can_wait(program_, node(cast), id);
      if (was_widened) addend = node(cast).inputs[0];
      const Value& base = program_.value(addend);
      if (base.type.shape == program_.type(sum.outputs[0]).shape &&
          is_contiguous(base.type.shape, base.layout.strides)) {
        const NodeId product = base.producer;
        const bool waits = head_ == HeadGradient::kLast && product != kNoNode &&
                           node(product).op == &product_ && readers_.only(addend) != kNoNode &&
                           can_wait(program_, node(product), id);
        return Term{maker, addend, was_widened ? cast : kNoNode, waits ? product : kNoNode};
      }
    }
    return std::nullopt;
  }

  // Returns the term of sum `id` that is a product; of two, the later one. nullopt: none is.
  std::optional<Term> term_of(NodeId id) const {
    const Node& sum = node(id);
    if (!sum.op->is_sum || sum.inputs.size() != 2) return std::nullopt;
    std::optional<Term> out;
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
      const NodeId product = product_behind(sum.inputs[i]);
      const ValueId addend = sum.inputs[1 - i];
      if (product == kNoNode || !fits(product, addend) || !can_wait(program_, node(product), id))
        continue;
      if (!out || product > out->maker) out = Term{.maker = product, .addend = addend};
    }
    return out;
  }

  // Returns the matrix product from which views and casts, each read once, make `id`, or kNoNode.
  NodeId product_behind(ValueId id) const {
    while (readers_.only(id) != kNoNode) {
      const NodeId maker = program_.value(id).producer;
      if (maker == kNoNode) return kNoNode;
      const Node& n = node(maker);
      if (n.op == &product_ || (adds_to_codes_ && n.op == &of_codes_)) return maker;
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
    if (node(product).op == &of_codes_ && c.leaf == LeafKind::kNone) return false;
    return is_contiguous(c.type.shape, c.layout.strides) &&
           c.type.count() == program_.type(node(product).outputs[0]).count();
  }

  void emit(const Node& sum, const Term& term) {
    const Node& product = node(term.maker);
    // The sum takes no time of its own: with its origin it would get half of the product's.
    const auto guard = r_.from(product);
    const Shape& shape = program_.type(product.outputs[0]).shape;
    std::vector<Val> operands = r_.inputs(product);
    operands.push_back(ops::reshape(r_.map(term.addend), shape));
    const Val y = product.op == &of_codes_
                      ? r_.builder().call1(kCodesAndSum, operands)
                      : r_.builder().call(find_op(kProductAndSum), operands, product.attrs).front();
    r_.replace(sum, {ops::reshape(y, program_.type(sum.outputs[0]).shape)});
  }

  // Emits the addition of rows in the sum's place: the other term may be made after the rows.
  void emit_rows(const Node& sum, const Term& term) {
    if (term.waiting != kNoNode) r_.copy(node(term.waiting));
    const Node& rows = node(term.maker);
    const auto guard = r_.from(rows);
    std::vector<Val> operands = r_.inputs(rows);
    operands.push_back(r_.map(term.addend));
    r_.replace(sum, {r_.builder().call1(kRowsAndSum, operands)});
  }

  const Program& program_;
  const bool adds_to_rows_, adds_to_codes_;  // the device has kernels for it
  const HeadGradient head_;
  const Readers readers_;
  const OpDef &product_, &of_codes_;
  Rewriter r_;
  std::map<NodeId, Term> terms_, rows_;  // by sum
  std::set<NodeId> left_out_;            // at the place where they stand
};

// True if each matrix that rows are added to lies in the memory of weights' narrow copies.
bool lie_in_copies(const Program& program) {
  const std::map<ValueId, ValueId> places = places_in_copies(program);
  return std::ranges::all_of(program.nodes, [&](const Node& node) {
    if (node.op->name != kRowsAndSum) return true;
    const ValueId addend = program.value(node.inputs.back()).layout.base;
    return places.contains(addend);
  });
}

}  // namespace

Program epilogue(const Program& program, const std::function<bool(const OpDef&)>& has_kernel,
                 HeadGradient head) {
  if (!has_kernel(find_op(kProductAndSum))) return program;
  Program first = Epilogue(program, has_kernel, HeadGradient::kFirst).run();
  const bool is_first = head == HeadGradient::kFirst || lie_in_copies(first);
  return add_rows(is_first ? first : Epilogue(program, has_kernel, head).run(), has_kernel);
}

Program epilogue(const Program& p, const PassOptions& o) {
  const bool computes_again = std::ranges::any_of(
      p.nodes, [](const Node& node) { return node.origin().phase == Phase::kRecompute; });
  return epilogue(
      p, [&](const OpDef& op) { return o.has_kernel(op); },
      computes_again ? HeadGradient::kFirst : HeadGradient::kLast);
}

}  // namespace tracestep
