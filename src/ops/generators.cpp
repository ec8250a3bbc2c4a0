// Ops without operands: constants that a program names but does not store.
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

Type declared_type(const OpCall& call) {
  return {call.attrs.dtype("dtype"), call.attrs.ints("shape")};
}

const AttrDef kDTypeAttr{"dtype", AttrKind::kDType, std::nullopt, "element type"};
const AttrDef kShapeAttr{"shape", AttrKind::kInts, std::nullopt, "result shape"};

}  // namespace

void register_generators() {
  register_op(
      {.name = "fill",
       .doc = "Every element is `value`.",
       .outputs = {"y"},
       .attrs = {{"value", AttrKind::kReal, std::nullopt, "the constant"}, kDTypeAttr, kShapeAttr},
       .kernel_class = KernelClass::kGenerator,
       .precision_class = PrecisionClass::kKeep,
       .infer = [](const OpCall& c) { return std::vector{declared_type(c)}; },
       .cheap_to_recompute = true});

  register_op(
      {.name = "iota",
       .doc = "0, 1, 2, … along `axis`, the same along all others.",
       .outputs = {"y"},
       .attrs = {{"axis", AttrKind::kInt, std::nullopt, "counted axis"}, kDTypeAttr, kShapeAttr},
       .kernel_class = KernelClass::kGenerator,
       .precision_class = PrecisionClass::kKeep,
       .infer =
           [](const OpCall& c) {
             const Type type = declared_type(c);
             rules::normalized_axis(c, c.attrs.integer("axis"), type.shape.rank());
             return std::vector{type};
           },
       .cheap_to_recompute = true});

  register_op(
      {.name = "rope_table",
       .doc = "cos and sin of position · theta^(-2j/width), [length, width/2], computed in double.",
       .source = "Su et al. 2021, RoFormer, eq. 15",
       .outputs = {"cos", "sin"},
       .attrs = {{"length", AttrKind::kInt, std::nullopt, "positions"},
                 {"width", AttrKind::kInt, std::nullopt, "head width D, even"},
                 {"theta", AttrKind::kReal, AttrValue(10000.0), "base of the frequencies"},
                 {"dtype", AttrKind::kDType, AttrValue(DType::kF32), "element type"}},
       .kernel_class = KernelClass::kGenerator,
       .precision_class = PrecisionClass::kFull,
       .infer =
           [](const OpCall& c) {
             const std::int64_t width = c.attrs.integer("width");
             const std::int64_t length = c.attrs.integer("length");
             if (width <= 0 || width % 2 != 0) {
               fail_usage(c.op.name, "width {} is not even; rotation works on pairs", width);
             }
             if (length < 0) fail_usage(c.op.name, "length {} is negative", length);
             const Type type{c.attrs.dtype("dtype"), {length, width / 2}};
             return std::vector{type, type};
           },
       .cheap_to_recompute = true});
}

}  // namespace tracestep::ops
