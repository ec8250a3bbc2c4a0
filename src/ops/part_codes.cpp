// 8-bit codes of weights that ranks hold in parts: each rank makes the codes of its part, with the
// scale of the whole weight, and the codes are gathered. The transposed codes, which products also
// read, are made from the gathered ones.
#include "ops/float8_codes.h"
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

constexpr std::size_t kGroup = 2;  // quantize_parts: x and last

// Returns the type of the largest magnitudes of all operands: a vector with an entry for each.
std::vector<Type> magnitudes_type(const OpCall& c) {
  for (int i = 0; i < static_cast<int>(c.inputs.size()); ++i) {
    rules::require_floating(c, i);
    rules::require_same_dtype(c, 0, i);
  }
  return {
      {rules::accumulation_dtype(c.inputs[0].dtype), {static_cast<std::int64_t>(c.inputs.size())}}};
}

std::vector<Val> magnitudes_decomposed(Expansion e) {
  std::vector<Val> out;
  for (const Val x : e.inputs) out.push_back(reshape(largest_magnitude(e, x), {1}));
  return {out.size() == 1 ? out[0] : concat(out, 0)};
}

// Returns the types of quantize_parts: codes, scale and largest magnitude of each part.
std::vector<Type> parts_type(const OpCall& c) {
  const std::size_t parts = (c.inputs.size() - 1) / kGroup;
  if (parts == 0 || 1 + parts * kGroup != c.inputs.size()) {
    fail_usage(c.op, "{} operands do not make pairs after the first", c.inputs.size());
  }
  require_codes(c, c.attrs.dtype("dtype"));
  rules::require_shape(c, 0, {static_cast<std::int64_t>(parts)});
  std::vector<Type> out;
  for (std::size_t i = 1; i < c.inputs.size(); i += kGroup) {
    const auto x = static_cast<int>(i);
    rules::require_floating(c, x);
    rules::require_same_dtype(c, 1, x);
    rules::require_same_dtype(c, 0, x + 1);
    rules::require_shape(c, x + 1, {1});
    const DType wide = c.inputs[0].dtype;
    out.insert(out.end(), {{c.attrs.dtype("dtype"), c.inputs[i].shape}, {wide, {}}, {wide, {1}}});
  }
  if (c.inputs[0].dtype != rules::accumulation_dtype(c.inputs[1].dtype)) {
    fail_usage(c.op, "now is {}; {} is expected", c.inputs[0].str(),
               name_of(rules::accumulation_dtype(c.inputs[1].dtype)));
  }
  return out;
}

std::vector<Val> parts_decomposed(Expansion e) {
  std::vector<Val> out;
  for (std::size_t i = 1; i < e.inputs.size(); i += kGroup) {
    const auto index = static_cast<std::int64_t>(i / kGroup);
    const Val now = copy(slice(e.inputs[0], 0, index, index + 1)),
              reach = checked_reach(e, reshape(now, {}), reshape(e.inputs[i + 1], {}));
    out.insert(out.end(), {codes_below(e, e.inputs[i], reach), scale_of(e, reach), now});
  }
  return out;
}

std::int64_t elements_of(const OpCall& c) {
  std::int64_t out = 0;
  for (const Type& type : c.inputs) out += type.count();
  return out;
}

// Returns the type of transposed codes, and checks that both sizes are multiples of kWholeRow.
std::vector<Type> transposed_type(const OpCall& c) {
  const Type& x = c.inputs[0];
  require_codes(c, x.dtype);
  if (x.shape.rank() != 2 || x.shape[0] % kWholeRow != 0 || x.shape[1] % kWholeRow != 0) {
    fail_usage(c.op, "x is {}; two dimensions, multiples of {}, are expected", x.str(), kWholeRow);
  }
  return {{x.dtype, {x.shape[1], x.shape[0]}}};
}

}  // namespace

void register_part_codes() {
  register_op({.name = "largest_magnitudes",
               .doc = "The largest magnitude of each operand, 2^-100 at least.",
               .inputs = {"xs..."},
               .outputs = {"y"},
               .kernel_class = KernelClass::kElementwise,
               .precision_class = PrecisionClass::kKeep,
               .infer = magnitudes_type,
               .accepts = rules::contiguous,
               .decompose = magnitudes_decomposed,
               .flops = elements_of,
               .only_on_gpus = true});
  register_op(
      {.name = "quantize_parts",
       .doc =
           "Codes of parts of tensors, each with a scale of its whole tensor: now has the "
           "largest magnitude of each, and last, as in quantize_delayed, that of the step "
           "before. Behind the first operand are pairs of x and last; results are groups of codes, "
           "scale and largest, which is that of now.",
       .source = "Micikevicius et al. 2022, section 3",
       .inputs = {"now", "xs..."},
       .outputs = {"xs_new..."},
       .attrs = delayed_attrs(),
       .kernel_class = KernelClass::kElementwise,
       .precision_class = PrecisionClass::kKeep,
       .infer = parts_type,
       .accepts = rules::contiguous,
       .writes = rules::contiguous,
       .decompose = parts_decomposed,
       .flops = elements_of,
       .only_on_gpus = true});
  register_op({.name = "transpose_codes",
               .doc = "The transpose of a matrix of 8-bit codes, whose sizes are multiples of 16.",
               .inputs = {"x"},
               .outputs = {"y"},
               .kernel_class = KernelClass::kCopy,
               .precision_class = PrecisionClass::kKeep,
               .infer = transposed_type,
               .accepts = rules::contiguous,
               .writes = rules::contiguous,
               .decompose =
                   [](Expansion e) {
                     return std::vector{copy(permute(e.inputs[0], {1, 0}))};
                   },
               .only_on_gpus = true});
}

}  // namespace tracestep::ops
