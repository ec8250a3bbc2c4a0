// Optimizer updates and the global gradient norm, as ops of the same program.
#include "base/integers.h"
#include "ir/device_traits.h"
#include "ops/cpu_plans.h"
#include "ops/cuda_plans.h"
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

std::vector<Type> adamw_type(const OpCall& c) {
  for (int i = 0; i < 4; ++i) {
    rules::require_floating(c, i);
    rules::require_shape(c, i, c.inputs[0].shape);
  }
  for (int i = 4; i < static_cast<int>(c.inputs.size()); ++i) rules::require_shape(c, i, {});
  if (c.inputs.size() > 7 && c.inputs[7].dtype != DType::kBool) {
    fail_usage(c.op.name, "`apply` is {}; bool is expected", c.inputs[7].str());
  }
  return {c.inputs[0], c.inputs[2], c.inputs[3]};
}

std::vector<Val> adamw_decomposed(Expansion e) {
  const Val p = e.inputs[0], m = e.inputs[2], v = e.inputs[3];
  const DType dtype = m.dtype();
  const double beta1 = e.attrs.real("beta1"), beta2 = e.attrs.real("beta2");
  Val g = cast(e.inputs[1], dtype);
  if (e.inputs.size() > 6) g = mul(g, cast(e.inputs[6], dtype));
  const Val decay = affine(e.inputs[4], -e.attrs.real("weight_decay"), 1.0);
  const Val m1 = add(affine(m, beta1), affine(g, 1.0 - beta1));
  const Val v1 = add(affine(v, beta2), affine(mul(g, g), 1.0 - beta2));
  const Val root = affine(unary("sqrt", v1), 1.0, e.attrs.real("eps"));
  const Val step = div(mul(m1, cast(e.inputs[5], dtype)), root);
  const Val p1 = sub(mul(p, cast(decay, p.dtype())), cast(step, p.dtype()));
  if (e.inputs.size() <= 7) return {p1, m1, v1};
  const Val apply = broadcast_to(e.inputs[7], p.shape());
  return {select(apply, p1, p), select(apply, m1, m), select(apply, v1, v)};
}

void register_adamw() {
  register_op(
      {.name = "adamw",
       .doc =
           "p ← p(1 - lr·weight_decay) - step_size·m/(√v + eps), with m and v updated first; "
           "step_size = lr·√(1-β2ᵗ)/(1-β1ᵗ). grad_scale multiplies the gradient (clipping, "
           "unscaling); where apply is false p, m and v stay as they are, whatever the gradient.",
       .source = "Loshchilov and Hutter 2019, alg. 2",
       .inputs = {"p", "grad", "m", "v", "lr", "step_size", "grad_scale?", "apply?"},
       .outputs = {"p_new", "m_new", "v_new"},
       .attrs = {{"beta1", AttrKind::kReal, AttrValue(0.9), "decay of m"},
                 {"beta2", AttrKind::kReal, AttrValue(0.999), "decay of v"},
                 {"eps", AttrKind::kReal, AttrValue(1e-8), "added to the uncorrected root"},
                 {"weight_decay", AttrKind::kReal, AttrValue(0.0), "decoupled decay"}},
       .kernel_class = KernelClass::kOptimizer,
       .precision_class = PrecisionClass::kFull,
       .infer = adamw_type,
       .accepts = rules::contiguous,
       .decompose = adamw_decomposed,
       .flops = rules::per_operand(0, 14),
       .donates = {{0, 0}, {1, 2}, {2, 3}}});
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
       // One partial sum per chunk of each operand.
       .workspace = [](const OpCall& c, const DeviceTraits& traits) -> std::int64_t {
         std::int64_t cpu_bytes = 0, cuda_bytes = 0;
         for (const Type& t : c.inputs) {
           cpu_bytes += ceil_div(t.count(), kNormChunk) * std::int64_t{sizeof(double)};
           cuda_bytes += cuda_norm_parts(t.count()) * std::int64_t{sizeof(float)};
         }
         return traits.kind == "cpu" ? cpu_bytes : traits.kind == "cuda" ? cuda_bytes : 0;
       }});
}

}  // namespace

void register_optimizers() {
  register_adamw();
  register_global_norm();
}

}  // namespace tracestep::ops
