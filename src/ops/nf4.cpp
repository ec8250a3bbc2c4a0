// Widens 4-bit weights before the products that read them; such weights are frozen.
#include "ops/nf4_codes.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

// Throws unless an operand has `count` elements, as a vector or in rows (weights cut by columns).
void require_count(const OpCall& c, int input, std::int64_t count) {
  const Shape& shape = c.inputs[static_cast<std::size_t>(input)].shape;
  if (shape.product() != count || shape.empty()) rules::require_shape(c, input, {count});
}

std::vector<Type> widened_type(const OpCall& c) {
  const Type out{c.attrs.dtype("dtype"), c.attrs.ints("shape")};
  const std::int64_t count = out.count();
  if (!is_floating(out.dtype) || is_float8(out.dtype) || count % kNf4Block != 0) {
    fail_usage(c.op, "{} cannot be widened to; whole blocks of {} are needed", out.str(),
               kNf4Block);
  }
  Shape pairs = out.shape;
  if (pairs.rank() > 0) pairs[pairs.rank() - 1] /= 2;
  if (pairs.product() * 2 != count) fail_usage(c.op, "rows of {} are odd", out.str());
  rules::require_shape(c, 0, pairs);
  const std::int64_t group = c.attrs.integer("group"), blocks = nf4_blocks(count);
  if (group < 1 || group > kNf4Group) {
    fail_usage(c.op.name, "group is {}; 1 to {} blocks are expected", group, kNf4Group);
  }
  require_count(c, 1, blocks);
  require_count(c, 2, ceil_div(blocks, group));
  rules::require_shape(c, 3, {1});
  for (int i = 0; i < 4; ++i) {
    const DType dtype = c.inputs[static_cast<std::size_t>(i)].dtype;
    if (i < 2 ? dtype == DType::kU8 : dtype == DType::kF32 || dtype == DType::kF64) continue;
    fail_usage(c.op, "operand {} is {}; codes are u8, scales f32", i, name_of(dtype));
  }
  return {out};
}

}  // namespace

void register_nf4() {
  register_op(
      {.name = "widen_nf4",
       .doc =
           "Weights from two codes of 4 bits a byte, the first in the high bits: nf4[code] · m, "
           "where m of each 64 elements is dynamic[magnitude] · scale + offset, a scale for each "
           "`group` of such blocks.",
       .source = "Dettmers et al. 2023, QLoRA, section 3",
       .inputs = {"codes", "magnitudes", "scales", "offset"},
       .outputs = {"w"},
       .attrs = {{"dtype", AttrKind::kDType, std::nullopt, "element type"},
                 {"shape", AttrKind::kInts, std::nullopt, "result shape"},
                 {"group", AttrKind::kInt, AttrValue(kNf4Group), "blocks with one scale"}},
       .kernel_class = KernelClass::kElementwise,
       .precision_class = PrecisionClass::kKeep,
       .infer = widened_type,
       .accepts = rules::contiguous,
       .flops = rules::per_result(1)});
}

}  // namespace tracestep::ops
