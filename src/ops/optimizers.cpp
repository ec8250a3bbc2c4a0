// Optimizer updates and the global gradient norm, as ops of the same program.
#include "ops/adamw_calls.h"
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"
#include "ops/shared_attrs.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

// Throws unless m (operand `m`) and v (the next) share a dtype that calls with `count` can have.
void require_rounded_moments(const OpCall& c, int m) {
  rules::require_same_dtype(c, m, m + 1);
  const Type& type = c.inputs[static_cast<std::size_t>(m)];
  if (type.dtype == DType::kF16) {
    fail_usage(c.op, "m is {}; with `count` it is f64, f32 or bf16", type.str());
  }
}

// Throws unless operand i is step_size, or the pair [step_size, factor on eps].
void require_step_size(const OpCall& c, int i) {
  if (c.inputs[static_cast<std::size_t>(i)].shape != Shape{2}) rules::require_shape(c, i, {});
}

// True if the call rounds a parameter of this dtype stochastically.
bool rounds_weight(const Attrs& attrs, DType dtype) {
  return attrs.flag("rounds_weight") && dtype == DType::kBF16;
}

std::vector<Type> adamw_type(const OpCall& c) {
  require_lane(c);
  for (int i = 0; i < 4; ++i) {
    rules::require_floating(c, i);
    rules::require_shape(c, i, c.inputs[0].shape);
  }
  for (int i = 4; i < static_cast<int>(c.inputs.size()); ++i) {
    if (i == 5)
      require_step_size(c, i);
    else
      rules::require_shape(c, i, {});
  }
  if (c.inputs.size() > 7 && c.inputs[7].dtype != DType::kBool) {
    fail_usage(c.op, "`apply` is {}; bool is expected", c.inputs[7].str());
  }
  if (c.inputs.size() > 8) require_rounded_moments(c, 2);
  require_count(c, c.inputs.size() > 8);
  return {c.inputs[0], c.inputs[2], c.inputs[3]};
}

// Returns element i of a pair, as of [step_size, factor on eps], as a scalar of this dtype.
Val element(Val pair, std::int64_t i, DType dtype) {
  return cast(reshape(slice(pair, 0, i, i + 1), {}), dtype);
}

// Rounds x stochastically, by the upper half of each element's noise if `upper`, else the lower.
Val rounded(Expansion e, Val x, bool upper) {
  return e.builder.call1("stochastic_round", {x, e.inputs[0], e.inputs[1], e.inputs[8]},
                         {{"dtype", e.inputs[2].dtype()}, {"upper", upper}});
}

std::vector<Val> adamw_decomposed(Expansion e) {
  const bool rounds = e.inputs.size() > 8 && is_low_precision(e.inputs[2].dtype());
  const auto old = [&](std::size_t i) {
    return rounds ? cast(e.inputs[i], DType::kF32) : e.inputs[i];
  };
  const bool moves_wide = rounds_weight(e.attrs, e.inputs[0].dtype());
  const Val p = moves_wide ? cast(e.inputs[0], DType::kF32) : e.inputs[0];
  const Val m = old(2), v = old(3);
  const DType dtype = m.dtype();
  const double beta1 = e.attrs.real("beta1"), beta2 = e.attrs.real("beta2");
  Val g = cast(e.inputs[1], dtype);
  if (e.inputs.size() > 6) g = mul(g, cast(e.inputs[6], dtype));
  const Val decay = affine(e.inputs[4], -e.attrs.real("weight_decay"), 1.0);
  const Val m1 = add(affine(m, beta1), affine(g, 1.0 - beta1));
  const Val v1 = add(affine(v, beta2), affine(mul(g, g), 1.0 - beta2));
  const Val sizes = e.inputs[5];
  const bool is_pair = sizes.shape().rank() > 0;
  const double eps = e.attrs.real("eps");
  const Val root = is_pair ? add(unary("sqrt", v1), affine(element(sizes, 1, dtype), eps))
                           : affine(unary("sqrt", v1), 1.0, eps);
  const Val step = div(mul(m1, is_pair ? element(sizes, 0, dtype) : cast(sizes, dtype)), root);
  const Val moved = sub(mul(p, cast(decay, p.dtype())), cast(step, p.dtype()));
  const Val m2 = rounds ? rounded(e, m1, false) : m1, v2 = rounds ? rounded(e, v1, true) : v1;
  const Val p1 =
      moves_wide ? rounded_weight(e, moved, e.inputs[0], e.inputs[1], e.inputs[8]) : moved;
  if (e.inputs.size() <= 7) return {p1, m2, v2};
  const Val apply = broadcast_to(e.inputs[7], p.shape());
  return {select(apply, p1, e.inputs[0]), select(apply, m2, e.inputs[2]),
          select(apply, v2, e.inputs[3])};
}

std::vector<AttrDef> adamw_attrs() {
  std::vector<AttrDef> out = adamw_factors();
  out.push_back(lane_attr());
  return out;
}

std::vector<std::vector<Val>> joined_adamw(Builder& b, const Attrs& attrs,
                                           std::span<const JoinedCall> calls) {
  const std::vector<Val>& shared = calls.front().inputs;  // lr, step_size, …: the same in all calls
  const bool shadowed = static_cast<bool>(calls.front().shadow);
  Attrs joined = attrs;
  joined.set("scaled", shared.size() > 6);
  joined.set("guarded", shared.size() > 7);
  joined.set("counted", shared.size() > 8);
  joined.set("shadowed", shadowed);
  std::vector<Val> operands(shared.begin() + 4, shared.end());
  for (const JoinedCall& call : calls) {
    operands.insert(operands.end(), call.inputs.begin(), call.inputs.begin() + 4);
    if (shadowed) operands.push_back(call.shadow);
  }
  return results_of_each(b.call(find_op("multi_adamw"), operands, joined), calls.size());
}

void register_adamw() {
  register_op(
      {.name = "adamw",
       .doc =
           "p ← p(1 - lr·weight_decay) - step_size·m/(√v + eps), with m and v updated first; "
           "step_size = lr·√(1-β2ᵗ)/(1-β1ᵗ). A second element of step_size multiplies "
           "eps: with √(1-β2ᵗ) eps is that of the corrected root. grad_scale multiplies the "
           "gradient (clipping, unscaling); where apply is false p, m and v stay as they are, "
           "whatever the gradient. With count, the number of the step, m and v in bfloat16 are "
           "rounded at random instead of to nearest (stochastic_round), and with rounds_weight so "
           "is p in bfloat16.",
       .source = "Loshchilov and Hutter 2019, alg. 2",
       .inputs = {"p", "grad", "m", "v", "lr", "step_size", "grad_scale?", "apply?", "count?"},
       .outputs = {"p_new", "m_new", "v_new"},
       .attrs = adamw_attrs(),
       .kernel_class = KernelClass::kOptimizer,
       .precision_class = PrecisionClass::kFull,
       .composite = Composite::kOptimizer,
       .infer = adamw_type,
       .accepts = rules::contiguous,
       .decompose = adamw_decomposed,
       .flops = rules::per_operand(0, 14),
       .join = JoinRule{"multi_adamw", joined_adamw},
       .widens = true,
       .donates = {{0, 0}, {1, 2}, {2, 3}}});
}

std::vector<Type> multi_adamw_type(const OpCall& c) {
  require_lane(c);
  const AdamwGroups groups = adamw_groups(c.attrs, c.inputs.size());
  require_groups(c, groups);
  std::vector<Type> out;
  for (std::size_t t = 0; t < groups.count; ++t) {
    const std::size_t p = groups.first_input(t);
    require_group(c, groups, p, groups.inputs_each());
    out.insert(out.end(), {c.inputs[p], c.inputs[p + 2], c.inputs[p + 3]});
    if (groups.shadowed) out.push_back(c.inputs[p + 4]);
  }
  return out;
}

std::vector<Val> multi_adamw_decomposed(Expansion e) {
  return decomposed_groups(e, adamw_groups(e.attrs, e.inputs.size()), adamw_of);
}

std::vector<Donation> multi_adamw_donations(const Attrs& attrs, std::size_t inputs) {
  return donated_groups(adamw_groups(attrs, inputs));
}

void register_multi_adamw() {
  std::vector<AttrDef> attrs = adamw_attrs();
  for (AttrDef& attr : optional_operands()) attrs.push_back(std::move(attr));
  attrs.push_back({"shadowed", AttrKind::kBool, AttrValue(false), "groups end with a shadow"});
  register_op(
      {.name = "multi_adamw",
       .doc = "adamw of many tensors in one launch. The operands go on with grad_scale, apply and "
              "count, where there are such, and a group p, grad, m, v for each tensor; the results "
              "are groups p, m, v. A shadow, the fifth of its group, is p in a narrower dtype: it "
              "is not read, and p as updated is rounded into the fourth result.",
       .source = "Loshchilov and Hutter 2019, alg. 2",
       .inputs = {"lr", "step_size", "xs..."},
       .outputs = {"xs_new..."},
       .attrs = std::move(attrs),
       .kernel_class = KernelClass::kOptimizer,
       .precision_class = PrecisionClass::kFull,
       .composite = Composite::kOptimizer,
       .infer = multi_adamw_type,
       .accepts = rules::contiguous,
       .decompose = multi_adamw_decomposed,
       .flops =
           [](const OpCall& c) {
             return 14 * elements_of_groups(c, adamw_groups(c.attrs, c.inputs.size()));
           },
       .bytes_read =
           [](const OpCall& c) {
             return bytes_of_groups(c, adamw_groups(c.attrs, c.inputs.size()));
           },
       .donates_in_groups = multi_adamw_donations});
}

void register_stochastic_round() {
  register_op(
      {.name = "stochastic_round",
       .doc = "x in another dtype; in bfloat16 the neighbour that is larger in magnitude with the "
              "probability of the part cut off. What decides is a hash of step, weight and "
              "gradient: the lower 16 bits of it, or the upper ones.",
       .source = "Gupta et al. 2015, sec. 3.2",
       .inputs = {"x", "weight", "gradient", "step"},
       .outputs = {"y"},
       .attrs = {{"dtype", AttrKind::kDType, std::nullopt, "bf16, or the dtype of x"},
                 {"upper", AttrKind::kBool, AttrValue(false), "which half of the hash decides"},
                 {"of_weight", AttrKind::kBool, AttrValue(false),
                  "a hash of the hash decides, as of what becomes of the weight"}},
       .kernel_class = KernelClass::kOptimizer,
       .precision_class = PrecisionClass::kFull,
       .infer =
           [](const OpCall& c) {
             const DType dtype = c.attrs.dtype("dtype");
             for (int i = 0; i < 3; ++i) {
               rules::require_floating(c, i);
               rules::require_shape(c, i, c.inputs[0].shape);
             }
             rules::require_shape(c, 3, {});
             const bool is_wide = !is_low_precision(c.inputs[0].dtype);
             if (!is_wide || (dtype != DType::kBF16 && dtype != c.inputs[0].dtype)) {
               fail_usage(c.op, "{} cannot be rounded to {}; f32 to bf16 can", c.inputs[0].str(),
                          name_of(dtype));
             }
             return std::vector{Type{dtype, c.inputs[0].shape}};
           },
       .accepts = rules::contiguous});
}

void register_global_norm() {
  register_op(
      {.name = "global_norm",
       .doc = "√ of the sum of squares over all elements of all operands.",
       .source = "Pascanu et al. 2013 (gradient clipping)",
       .inputs = {"xs..."},
       .outputs = {"norm"},
       .kernel_class = KernelClass::kReduction,
       .precision_class = PrecisionClass::kFull,
       .composite = Composite::kOptimizer,
       .infer =
           [](const OpCall& c) {
             for (int i = 0; i < static_cast<int>(c.inputs.size()); ++i) {
               rules::require_floating(c, i);
             }
             return std::vector{Type{rules::accumulation_dtype(c.inputs[0].dtype), Shape{}}};
           },
       .accepts = rules::contiguous,
       .decompose =
           [](Expansion e) {
             const DType wide = rules::accumulation_dtype(e.inputs[0].dtype());
             Val total;
             for (const Val& x : e.inputs) {
               Dims all;
               for (int i = 0; i < x.shape().rank(); ++i) all.push_back(i);
               const Val part = ops::sum(unary("square", cast(x, wide)), all);
               total = total ? add(total, part) : part;
             }
             return std::vector{unary("sqrt", total)};
           },
       .flops =
           [](const OpCall& c) {
             std::int64_t n = 0;
             for (const Type& t : c.inputs) n += 2 * t.count();
             return n;
           },
       .widens = true});
}

}  // namespace

std::vector<AttrDef> adamw_factors() {
  return {{"beta1", AttrKind::kReal, AttrValue(0.9), "decay of m"},
          {"beta2", AttrKind::kReal, AttrValue(0.999), "decay of v"},
          {"eps", AttrKind::kReal, AttrValue(1e-8), "added to the uncorrected root"},
          {"weight_decay", AttrKind::kReal, AttrValue(0.0), "decoupled decay"},
          {"rounds_weight", AttrKind::kBool, AttrValue(false),
           "p in bfloat16 is rounded at random, by count"}};
}

void require_count(const OpCall& c, bool counted) {
  if (!c.attrs.flag("rounds_weight") || counted) return;
  fail_usage(c.op, "rounds_weight without `count`, the number of the step");
}

Val rounded_weight(const OpExpansion& e, Val x, Val weight, Val gradient, Val count) {
  return e.builder.call1("stochastic_round", {x, weight, gradient, count},
                         {{"dtype", weight.dtype()}, {"of_weight", true}});
}

std::vector<AttrDef> optional_operands() {
  return {{"scaled", AttrKind::kBool, AttrValue(false), "grad_scale comes first"},
          {"guarded", AttrKind::kBool, AttrValue(false), "apply comes next"},
          {"counted", AttrKind::kBool, AttrValue(false), "count comes next"}};
}

void donate_group(std::vector<Donation>& out, std::size_t output, std::size_t p) {
  constexpr std::size_t kOperands[] = {0, 2, 3};  // p, m, v; the gradient lies between them
  for (std::size_t i = 0; i < std::size(kOperands); ++i) {
    out.push_back({static_cast<int>(output + i), static_cast<int>(p + kOperands[i])});
  }
}

std::vector<Val> adamw_of(const OpExpansion& e, const AdamwGroups& groups, std::size_t p) {
  Attrs attrs;
  for (const AttrDef& attr : adamw_factors()) attrs.set(attr.name, *e.attrs.find(attr.name));
  if (const AttrValue* lane = e.attrs.find("lane")) attrs.set("lane", *lane);
  std::vector<Val> operands{e.inputs[p],     e.inputs[p + 1], e.inputs[p + 2],
                            e.inputs[p + 3], e.inputs[0],     e.inputs[1]};
  // Each optional operand needs those before it.
  if (groups.scaled) {
    operands.push_back(e.inputs[groups.scale()]);
  } else if (groups.guarded || groups.counted) {
    operands.push_back(fill(e.builder, 1.0, e.inputs[0].type()));
  }
  if (groups.guarded) {
    operands.push_back(e.inputs[groups.apply()]);
  } else if (groups.counted) {
    operands.push_back(fill(e.builder, 1.0, {DType::kBool, {}}));
  }
  if (groups.counted) operands.push_back(e.inputs[groups.step_count()]);
  return e.builder.call(find_op("adamw"), operands, attrs);
}

void require_group(const OpCall& c, const AdamwGroups& groups, std::size_t p, std::size_t inputs) {
  if (groups.counted) require_rounded_moments(c, static_cast<int>(p + 2));
  for (std::size_t i = p; i < p + inputs; ++i) {
    rules::require_floating(c, static_cast<int>(i));
    rules::require_shape(c, static_cast<int>(i), c.inputs[p].shape);
  }
}

void require_factors(const OpCall& c, const AdamwGroups& groups) {
  require_count(c, groups.counted);
  for (std::size_t i = 0; i < groups.first_input(0); ++i) {
    if (i == 1)
      require_step_size(c, 1);
    else
      rules::require_shape(c, static_cast<int>(i), {});
  }
  if (groups.guarded && c.inputs[groups.apply()].dtype != DType::kBool) {
    fail_usage(c.op, "`apply` is {}; bool is expected", c.inputs[groups.apply()].str());
  }
}

void require_groups(const OpCall& c, const AdamwGroups& groups) {
  if (groups.count == 0 || groups.first_input(groups.count) != c.inputs.size()) {
    fail_usage(c.op, "{} operands do not make groups of {}", c.inputs.size(), groups.inputs_each());
  }
  require_factors(c, groups);
}

std::vector<Val> decomposed_groups(const OpExpansion& e, const AdamwGroups& groups,
                                   std::vector<Val> (*update)(const OpExpansion&,
                                                              const AdamwGroups&, std::size_t p)) {
  std::vector<Val> out;
  for (std::size_t t = 0; t < groups.count; ++t) {
    const std::vector<Val> updated = update(e, groups, groups.first_input(t));
    out.insert(out.end(), updated.begin(), updated.end());
    if (groups.shadowed) out.push_back(cast(updated[0], e.inputs[groups.shadow(t)].dtype()));
  }
  return out;
}

std::vector<Donation> donated_groups(const AdamwGroups& groups) {
  std::vector<Donation> out;
  for (std::size_t t = 0; t < groups.count; ++t) {
    const std::size_t to = groups.first_output(t), from = groups.first_input(t);
    for (std::size_t i = 0; i < groups.outputs_each(); ++i) {
      const std::size_t operand = i == 0 ? i : i + 1;  // the gradient comes after p
      out.push_back({static_cast<int>(to + i), static_cast<int>(from + operand)});
    }
  }
  return out;
}

std::vector<std::vector<Val>> results_of_each(const std::vector<Val>& results, std::size_t calls) {
  const auto each = static_cast<std::ptrdiff_t>(results.size() / calls);
  std::vector<std::vector<Val>> out;
  for (std::size_t i = 0; i < calls; ++i) {
    const auto first = results.begin() + static_cast<std::ptrdiff_t>(i) * each;
    out.emplace_back(first, first + each);
  }
  return out;
}

std::int64_t elements_of_groups(const OpCall& c, const AdamwGroups& groups) {
  std::int64_t out = 0;
  for (std::size_t t = 0; t < groups.count; ++t) out += c.inputs[groups.first_input(t)].count();
  return out;
}

std::int64_t bytes_of_groups(const OpCall& c, const AdamwGroups& groups) {
  std::int64_t out = 0;
  for (const Type& type : c.inputs) out += type.bytes();
  for (std::size_t t = 0; groups.shadowed && t < groups.count; ++t) {
    out -= c.inputs[groups.shadow(t)].bytes();
  }
  return out;
}

void register_optimizers() {
  register_adamw();
  register_multi_adamw();
  register_stochastic_round();
  register_global_norm();
}

}  // namespace tracestep::ops

namespace tracestep {

AdamwGroups adamw_groups(const Attrs& attrs, std::size_t inputs) {
  AdamwGroups out{.scaled = attrs.flag("scaled"),
                  .guarded = attrs.flag("guarded"),
                  .counted = attrs.flag("counted"),
                  .shadowed = attrs.flag("shadowed")};
  const std::size_t first = out.first_input(0);
  out.count = inputs > first ? (inputs - first) / out.inputs_each() : 0;
  return out;
}

AdamwGroups coded_adamw_groups(const Attrs& attrs, std::size_t inputs) {
  AdamwGroups out{.scaled = attrs.flag("scaled"),
                  .guarded = attrs.flag("guarded"),
                  .counted = true,
                  .coded = true,
                  .shadowed = attrs.flag("shadowed")};
  const std::size_t first = out.first_input(0);
  out.count = inputs > first ? (inputs - first) / out.inputs_each() : 0;
  return out;
}

AdamwBlocks adamw_blocks(const Attrs& attrs, std::size_t inputs) {
  AdamwBlocks out{.factors = {.scaled = attrs.flag("scaled"),
                              .guarded = attrs.flag("guarded"),
                              .counted = attrs.flag("counted")},
                  .parts = static_cast<std::size_t>(attrs.integer("parts"))};
  const std::size_t first = out.found() + 1;
  out.count = inputs > first ? (inputs - first) / out.inputs_each() : 0;
  return out;
}

}  // namespace tracestep
