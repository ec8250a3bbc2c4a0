// Mean cross-entropy of rows of logits against target indices, its gradient, and both at once. Rows
// may end in padding, columns that do not count; with `count`, rows of ignored targets do not.
#include "ops/functions.h"
#include "ops/ignored_targets.h"
#include "ops/registers.h"
#include "ops/rules.h"
#include "ops/shared_attrs.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

// Checks the operands of a loss, given by index; `count`: the index that this operand would have.
void check_rows(const OpCall& c, int logits, int targets, std::size_t count) {
  const Type& type = c.inputs[static_cast<std::size_t>(logits)];
  rules::require_floating(c, logits);
  if (type.shape.rank() != 2 || type.count() == 0) {
    fail_usage(c.op, "logits are {}; non-empty [N,V] is expected", type.str());
  }
  rules::require_integer(c, targets);
  rules::require_shape(c, targets, {type.shape[0]});
  const std::int64_t columns = c.attrs.integer("columns");
  if (columns < 0 || columns > type.shape[1]) {
    fail_usage(c.op, "columns is {}; at most {} count, and 0 stands for all", columns,
               type.shape[1]);
  }
  if (c.inputs.size() <= count) return;
  const Type wanted{rules::accumulation_dtype(type.dtype), {}};
  if (c.inputs[count] == wanted) return;
  fail_usage(c.op, "count is {}; {} is expected", c.inputs[count].str(), wanted.str());
}

std::vector<AttrDef> loss_attrs() {
  return {{"columns", AttrKind::kInt, std::int64_t{0},
           "columns of the logits that count; the others have no gradient. 0: all"},
          ignore_index_attr()};
}

// Returns `rows` without the columns of padding, which do not count.
Val counted(const Val& rows, const Attrs& attrs) {
  const std::int64_t columns = loss_columns(attrs, rows.dim(1));
  return columns == rows.dim(1) ? rows : slice(rows, 1, 0, columns);
}

// Adds columns of zeros after those that count, up to `width`.
Val with_padding(Val rows, std::int64_t width) {
  const std::int64_t missing = width - rows.dim(1);
  if (missing == 0) return rows;
  const Val zeros =
      broadcast_to(fill(*rows.builder, 0.0, {rows.dtype(), {}}), Shape{rows.dim(0), missing});
  return concat({rows, zeros}, 1);
}

std::vector<Type> forward_type(const OpCall& c) {
  check_rows(c, 0, 1, 2);
  const DType wide = rules::accumulation_dtype(c.inputs[0].dtype);
  return {{wide, {}}, {wide, {c.inputs[0].shape[0]}}};
}

std::vector<Val> decomposed(Expansion e) {
  const Val logits =
      cast(counted(e.inputs[0], e.attrs), rules::accumulation_dtype(e.inputs[0].dtype()));
  const Val lse = log_sum_exp(logits), count = count_of(e, 2);
  const Val none = ignored(e, e.inputs[1], count);
  const Val losses =
      without_ignored(e, sub(lse, take_along(logits, without_ignored(e, e.inputs[1], none))), none);
  if (count) return {div(sum(losses, {0}), count), lse};
  return {affine(sum(losses, {0}), 1.0 / static_cast<double>(logits.dim(0))), lse};
}

std::vector<Val> forward_gradient(Expansion e) {
  if (e.output_grads[1]) {
    fail_usage("cross_entropy", "no gradient flows through the second result; use log_sum_exp");
  }
  std::vector<Val> operands{e.output_grads[0], e.inputs[0], e.inputs[1], e.outputs[1]};
  if (const Val count = count_of(e, 2)) operands.push_back(count);
  std::vector<Val> out(e.inputs.size());
  out[0] = e.builder.call1("cross_entropy_grad", operands, e.attrs);
  return out;
}

std::vector<Val> gradient_decomposed(Expansion e) {
  const Val logits =
      cast(counted(e.inputs[1], e.attrs), rules::accumulation_dtype(e.inputs[1].dtype()));
  const std::int64_t rows = logits.dim(0), vocab = logits.dim(1);
  const Val p = unary("exp", sub(logits, reshape(e.inputs[3], {rows, 1})));
  const Val one = broadcast_to(fill(e.builder, 1.0, {logits.dtype(), {}}), {rows});
  const Val count = count_of(e, 4), none = ignored(e, e.inputs[2], count);
  const Val hit =
      e.builder.call1("put_along", {one, without_ignored(e, e.inputs[2], none)}, {{"size", vocab}});
  const Val scale =
      count ? div(e.inputs[0], count) : affine(e.inputs[0], 1.0 / static_cast<double>(rows));
  const Val gradient = without_ignored(e, mul(sub(p, hit), scale), none);
  return {with_padding(cast(gradient, e.inputs[1].dtype()), e.inputs[1].dim(1))};
}

std::vector<Type> both_type(const OpCall& c) {
  check_rows(c, 1, 2, 3);
  rules::require_shape(c, 0, {});
  return {{rules::accumulation_dtype(c.inputs[1].dtype), {}}, c.inputs[1]};
}

std::vector<Val> both_decomposed(Expansion e) {
  const Val dloss = e.inputs[0], logits = e.inputs[1], targets = e.inputs[2];
  std::vector<Val> forward{logits, targets};
  if (const Val count = count_of(e, 3)) forward.push_back(count);
  const std::vector<Val> loss = e.builder.call(find_op("cross_entropy"), forward, e.attrs);
  std::vector<Val> backward{dloss, logits, targets, loss[1]};
  if (const Val count = count_of(e, 3)) backward.push_back(count);
  return {loss[0], e.builder.call1("cross_entropy_grad", backward, e.attrs)};
}

}  // namespace

void register_cross_entropy() {
  register_op({.name = "cross_entropy",
               .doc =
                   "Mean over rows of log Σ exp(logits) - logits[target]; also the row sums. With "
                   "count, the sum over rows whose target is not ignored, over count.",
               .inputs = {"logits", "targets", "count?"},
               .outputs = {"loss", "lse"},
               .attrs = loss_attrs(),
               .kernel_class = KernelClass::kReduction,
               .precision_class = PrecisionClass::kFull,
               .composite = Composite::kLoss,
               .infer = forward_type,
               .accepts = rules::contiguous,
               .gradient = forward_gradient,
               .decompose = decomposed,
               .flops = rules::per_operand(0, 4)});

  register_op({.name = "cross_entropy_grad",
               .doc = "dloss/N · (softmax(logits) - onehot(target)), written over the logits; N is "
                      "count where it is given, and rows of ignored targets are 0.",
               .inputs = {"dloss", "logits", "targets", "lse", "count?"},
               .outputs = {"dlogits"},
               .attrs = loss_attrs(),
               .kernel_class = KernelClass::kReduction,
               .precision_class = PrecisionClass::kFull,
               .composite = Composite::kLoss,
               .infer =
                   [](const OpCall& c) {
                     check_rows(c, 1, 2, 4);
                     rules::require_shape(c, 0, {});
                     rules::require_shape(c, 3, {c.inputs[1].shape[0]});
                     return std::vector{c.inputs[1]};
                   },
               .accepts = rules::contiguous,
               .decompose = gradient_decomposed,
               .flops = rules::per_result(3),
               .donates = {{0, 1}}});

  register_op({.name = "cross_entropy_with_grad",
               .doc = "cross_entropy and cross_entropy_grad, row by row, written over the logits.",
               .inputs = {"dloss", "logits", "targets", "count?"},
               .outputs = {"loss", "dlogits"},
               .attrs = loss_attrs(),
               .kernel_class = KernelClass::kReduction,
               .precision_class = PrecisionClass::kFull,
               .composite = Composite::kLoss,
               .infer = both_type,
               .accepts = rules::contiguous,
               .decompose = both_decomposed,
               .flops = rules::per_operand(1, 7),
               .donates = {{1, 1}}});
}

}  // namespace tracestep::ops
