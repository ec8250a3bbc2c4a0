// AdamW with 8-bit moments, and the ops that convert these codes.
#include "ops/adamw_calls.h"
#include "ops/functions.h"
#include "ops/moment_codes.h"
#include "ops/registers.h"
#include "ops/rules.h"
#include "ops/shared_attrs.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

constexpr const char* kSource = "Dettmers et al. 2022, section 2; Gupta et al. 2015, section 3.2";

AttrDef first_attr() {
  return {"first", AttrKind::kBool, std::nullopt, "m, of any sign; false: v, never negative"};
}

// Requires that operand `codes` has the codes of a tensor of this shape, and `scale` their scales.
void require_codes(const OpCall& c, int codes, int scale, const Shape& shape) {
  const Type& type = c.inputs[static_cast<std::size_t>(codes)];
  if (type.dtype != DType::kU8) {
    fail_usage(c.op, "operand {} is {}; codes are u8", codes, type.str());
  }
  rules::require_shape(c, codes, shape);
  const Type& scales = c.inputs[static_cast<std::size_t>(scale)];
  if (scales.dtype != rules::accumulation_dtype(scales.dtype)) {
    fail_usage(c.op, "operand {} is {}; scales are f32", scale, scales.str());
  }
  rules::require_shape(c, scale, {coded_blocks(shape.product())});
}

// Returns the result types of the op moment_codes: codes of 8 bits, and a scale for each block.
std::vector<Type> moment_codes_type(const OpCall& c) {
  const Shape& shape = c.inputs[0].shape;
  for (int i = 0; i < 3; ++i) {
    rules::require_floating(c, i);
    rules::require_shape(c, i, shape);
  }
  rules::require_shape(c, 3, {});
  return {{DType::kU8, shape},
          {rules::accumulation_dtype(c.inputs[0].dtype), {coded_blocks(shape.product())}}};
}

void register_moment_codes() {
  register_op(
      {.name = "moment_codes",
       .doc = "x in blocks of 128 neighbours as codes of 8 bits, each block with a power of two as "
              "its scale: numbers of 4 bits of mantissa, with a sign and 3 bits of exponent, or "
              "with 4 bits of exponent. Of the two codes beside a number, a hash of step, weight "
              "and gradient decides, so that the mean is the number; zero stays zero, and in v "
              "nothing else becomes zero.",
       .source = kSource,
       .inputs = {"x", "weight", "gradient", "step"},
       .outputs = {"codes", "scale"},
       .attrs = {first_attr()},
       .kernel_class = KernelClass::kOptimizer,
       .precision_class = PrecisionClass::kFull,
       .infer = moment_codes_type,
       .accepts = rules::contiguous});
}

void register_from_moment_codes() {
  register_op({.name = "from_moment_codes",
               .doc = "The numbers that moment_codes stored.",
               .source = kSource,
               .inputs = {"codes", "scale"},
               .outputs = {"x"},
               .attrs = {first_attr()},
               .kernel_class = KernelClass::kOptimizer,
               .precision_class = PrecisionClass::kFull,
               .infer =
                   [](const OpCall& c) {
                     require_codes(c, 0, 1, c.inputs[0].shape);
                     return std::vector{Type{c.inputs[1].dtype, c.inputs[0].shape}};
                   },
               .accepts = rules::contiguous});
}

// Returns the result types of adamw_8bit, those of its operands without grad, and checks operands.
std::vector<Type> adamw_8bit_type(const OpCall& c) {
  require_lane(c);
  const AdamwGroups groups = coded_adamw_groups(c.attrs, c.inputs.size());
  require_groups(c, groups);
  std::vector<Type> out;
  for (std::size_t t = 0; t < groups.count; ++t) {
    const std::size_t first = groups.first_input(t), shadow = groups.shadow(t);
    const auto p = static_cast<int>(first);
    const Shape& shape = c.inputs[first].shape;
    rules::require_floating(c, p);
    rules::require_floating(c, p + 1);
    rules::require_shape(c, p + 1, shape);
    require_codes(c, p + 2, p + 4, shape);
    require_codes(c, p + 3, p + 5, shape);
    out.push_back(c.inputs[first]);
    for (std::size_t i = 2; i < 6; ++i) out.push_back(c.inputs[first + i]);
    if (!groups.shadowed) continue;
    rules::require_floating(c, static_cast<int>(shadow));
    rules::require_shape(c, static_cast<int>(shadow), shape);
    out.push_back(c.inputs[shadow]);
  }
  return out;
}

// Returns the new p, m, v, m_scale and v_scale of one tensor.
std::vector<Val> updated_group(Expansion e, const AdamwGroups& groups, std::size_t p) {
  const Val weight = e.inputs[p], gradient = e.inputs[p + 1];
  const auto decoded = [&](std::size_t codes, bool first) {
    return e.builder.call1("from_moment_codes", {e.inputs[codes], e.inputs[codes + 2]},
                           {{"first", first}});
  };
  const bool rounds = e.attrs.flag("rounds_weight") && weight.dtype() == DType::kBF16;
  const Val moved = rounds ? cast(weight, DType::kF32) : weight,
            count = e.inputs[groups.step_count()];
  std::vector<Val> operands{moved,       gradient,   decoded(p + 2, true), decoded(p + 3, false),
                            e.inputs[0], e.inputs[1]};
  if (groups.scaled) operands.push_back(e.inputs[groups.scale()]);
  Attrs attrs;
  for (const AttrDef& attr : adamw_factors()) attrs.set(attr.name, *e.attrs.find(attr.name));
  attrs.set("rounds_weight", false);  // that is done below, with the moments
  if (const AttrValue* lane = e.attrs.find("lane")) attrs.set("lane", *lane);
  const std::vector<Val> exact = e.builder.call(find_op("adamw"), operands, attrs);
  const auto coded = [&](std::size_t i, bool first) {
    return e.builder.call(find_op("moment_codes"), {exact[i], weight, gradient, count},
                          {{"first", first}});
  };
  const std::vector<Val> m = coded(1, true), v = coded(2, false);
  const Val p1 = rounds ? rounded_weight(e, exact[0], weight, gradient, count) : exact[0];
  std::vector<Val> out{p1, m[0], v[0], m[1], v[1]};
  if (!groups.guarded) {
    out[0] = copy(p1);  // made last, as what becomes of the weight, which all others read
    return out;
  }
  constexpr std::size_t kOld[] = {0, 2, 3, 4, 5};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Val apply = broadcast_to(e.inputs[groups.apply()], out[i].shape());
    out[i] = select(apply, out[i], e.inputs[p + kOld[i]]);
  }
  return out;
}

AdamwGroups groups_of(const OpCall& c) {
  return coded_adamw_groups(c.attrs, c.inputs.size());
}

std::vector<Val> adamw_8bit_decomposed(Expansion e) {
  return decomposed_groups(e, coded_adamw_groups(e.attrs, e.inputs.size()), updated_group);
}

std::vector<Donation> adamw_8bit_donations(const Attrs& attrs, std::size_t inputs) {
  return donated_groups(coded_adamw_groups(attrs, inputs));
}

// Merges calls for single tensors into one for all, and returns the results of each call.
std::vector<std::vector<Val>> joined_adamw_8bit(Builder& b, const Attrs& attrs,
                                                std::span<const JoinedCall> calls) {
  const JoinedCall& first = calls.front();
  const AdamwGroups groups = coded_adamw_groups(attrs, first.inputs.size());
  const bool shadowed = static_cast<bool>(first.shadow);
  Attrs joined = attrs;
  joined.set("shadowed", shadowed);
  const auto tensors = static_cast<std::ptrdiff_t>(groups.first_input(0));
  std::vector<Val> operands(first.inputs.begin(), first.inputs.begin() + tensors);
  for (const JoinedCall& call : calls) {
    operands.insert(operands.end(), call.inputs.begin() + tensors, call.inputs.end());
    if (shadowed) operands.push_back(call.shadow);
  }
  return results_of_each(b.call(find_op("adamw_8bit"), operands, joined), calls.size());
}

// FLOPs per element: 14 of AdamW's rule, and for both codes three to read and three to write.
constexpr std::int64_t kOperations = 14 + 2 * (3 + 3);

}  // namespace

void register_adamw_8bit() {
  register_moment_codes();
  register_from_moment_codes();
  std::vector<AttrDef> attrs = adamw_factors();
  attrs.push_back(lane_attr());
  for (AttrDef& attr : optional_operands()) {
    if (attr.name != "counted") attrs.push_back(std::move(attr));
  }
  attrs.push_back({"shadowed", AttrKind::kBool, AttrValue(false), "groups end with a shadow"});
  register_op(
      {.name = "adamw_8bit",
       .doc = "adamw of one or more tensors whose moments are moment_codes: they are read, updated "
              "in float32 and rounded again, by the number of the step. The operands go on with "
              "grad_scale and apply, where there are such, and count, then a group p, grad, m, v, "
              "m_scale, v_scale for each tensor; the results are groups p, m, v, m_scale, v_scale. "
              "A shadow, the last of its group, is p in a narrower dtype: it is not read, and p as "
              "updated is rounded into the last result.",
       .source = "Loshchilov and Hutter 2019, alg. 2; Dettmers et al. 2022, section 2",
       .inputs = {"lr", "step_size", "xs..."},
       .outputs = {"xs_new..."},
       .attrs = std::move(attrs),
       .kernel_class = KernelClass::kOptimizer,
       .precision_class = PrecisionClass::kFull,
       .composite = Composite::kOptimizer,
       .infer = adamw_8bit_type,
       .accepts = rules::contiguous,
       .decompose = adamw_8bit_decomposed,
       .flops = [](const OpCall& c) { return kOperations * elements_of_groups(c, groups_of(c)); },
       .bytes_read = [](const OpCall& c) { return bytes_of_groups(c, groups_of(c)); },
       .join = JoinRule{"adamw_8bit", joined_adamw_8bit},
       .widens = true,
       .donates_in_groups = adamw_8bit_donations});
}

}  // namespace tracestep::ops
