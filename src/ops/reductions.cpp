// Reductions over a list of axes, accumulated in float32 (float64 for f64) in a fixed order.
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"
#include "ops/shared_attrs.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

std::vector<Type> reduced_type(const OpCall& c) {
  const Shape& shape = c.inputs[0].shape;
  rules::require_floating(c, 0);
  std::vector<bool> reduced(static_cast<std::size_t>(shape.rank()), false);
  for (std::int64_t axis : c.attrs.ints("axes")) {
    const auto at = static_cast<std::size_t>(rules::normalized_axis(c, axis, shape.rank()));
    if (reduced[at]) fail_usage(c.op, "axis {} is named twice", axis);
    reduced[at] = true;
  }
  Shape out;
  for (int i = 0; i < shape.rank(); ++i) {
    if (!reduced[static_cast<std::size_t>(i)]) {
      out.push_back(shape[i]);
    } else if (c.attrs.flag("keepdims")) {
      out.push_back(1);
    }
  }
  const DType dtype = c.inputs[0].dtype;
  const bool is_wide = c.op.find_attr(kWideSum) != nullptr && c.attrs.flag(kWideSum);
  return {{is_wide ? rules::accumulation_dtype(dtype) : dtype, out}};
}

// Broadcasts `y` (the reduced result or its gradient) back to the shape of `x`.
Val spread(Expansion e, Val y) {
  const Shape& shape = e.inputs[0].shape();
  Shape kept = shape;
  for (std::int64_t axis : e.attrs.ints("axes")) {
    kept[static_cast<int>(axis < 0 ? axis + shape.rank() : axis)] = 1;
  }
  return broadcast_to(reshape(y, kept), shape);
}

OpDef reduction(std::string name, std::string doc) {
  return {.name = std::move(name),
          .doc = std::move(doc),
          .inputs = {"x"},
          .outputs = {"y"},
          .attrs = {{"axes", AttrKind::kInts, std::nullopt, "reduced axes"},
                    {"keepdims", AttrKind::kBool, AttrValue(false), "keep them with size 1"}},
          .kernel_class = KernelClass::kReduction,
          .precision_class = PrecisionClass::kFull,
          .fusion = Fusion::kRows,
          .infer = reduced_type,
          .accepts = rules::any_strides,
          .flops = rules::per_operand(0, 1)};
}

}  // namespace

void register_reductions() {
  OpDef sum = reduction("sum", "Sum over `axes`; 0 over nothing.");
  sum.attrs.push_back({kWideSum, AttrKind::kBool, AttrValue(false),
                       "float32 of narrower x: the sum as it was accumulated, not rounded to x's "
                       "dtype"});
  sum.gradient = [](Expansion e) {
    return std::vector{spread(e, cast(e.output_grads[0], e.inputs[0].dtype()))};
  };
  register_op(std::move(sum));

  OpDef max = reduction(
      "max",
      "Maximum over `axes`; -inf over nothing, NaN where any is NaN. Ties share the gradient.");
  max.gradient = [](Expansion e) {
    const Val x = e.inputs[0];
    const Val hit = cast(binary("eq", x, spread(e, e.outputs[0])), x.dtype());
    const Val ties = ops::sum(hit, e.attrs.ints("axes"), e.attrs.flag("keepdims"));
    return std::vector{mul(hit, spread(e, div(e.output_grads[0], ties)))};
  };
  register_op(std::move(max));
}

}  // namespace tracestep::ops
