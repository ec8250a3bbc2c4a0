// Products of 8-bit operands: an operand and its transpose in 8 bits with one scale, and the
// product of two such operands. Both are read along K, since tensor cores multiply 8-bit numbers
// of no other order; so whoever quantizes writes both orders while it has the elements.
#include <cmath>

#include "ops/float8_codes.h"
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

// The least magnitude that may get the largest code, also of an operand with nothing but zeros, so
// that no scale is 0 or infinite.
constexpr double kLeastMagnitude = 0x1p-100;
// The largest float32, the most that reach_of() returns.
constexpr double kMostReach = 0x1.fffffep127;
Val constant(Expansion e, Val like, double value) {
  return fill(e.builder, value, {rules::accumulation_dtype(like.dtype()), {}});
}

std::vector<Type> quantized_types(const OpCall& c) {
  rules::require_floating(c, 0);
  const Type& x = c.inputs[0];
  if (x.shape.rank() != 2) {
    fail_usage(c.op, "x is {}; two dimensions are expected", x.shape.str());
  }
  const DType codes = c.attrs.dtype("dtype");
  require_codes(c, codes);
  return {{codes, x.shape},
          {codes, {x.shape[1], x.shape[0]}},
          {rules::accumulation_dtype(x.dtype), {}}};
}

std::vector<Val> quantize_decomposed(Expansion e) {
  return codes_up_to(e, e.inputs[0], largest_magnitude(e, e.inputs[0]));
}

// Returns the result types of an op that reads operand `last` and returns its new value as well.
std::vector<Type> delayed_types(const OpCall& c) {
  std::vector<Type> out = quantized_types(c);
  const auto at = static_cast<int>(c.inputs.size()) - 1;
  rules::require_shape(c, at, {1});
  if (c.inputs.back().dtype != out[2].dtype) {
    fail_usage(c.op, "last is {}; {} is expected", c.inputs.back().str(), name_of(out[2].dtype));
  }
  out.push_back(c.inputs.back());
  return out;
}

// Returns a rule for the result types of `parts` matrices like x, whose codes lie side by side.
std::function<std::vector<Type>(const OpCall&)> computed_types(std::int64_t parts) {
  return [parts](const OpCall& c) {
    std::vector<Type> out = delayed_types(c);
    for (std::size_t i = 1; i + 1 < c.inputs.size(); ++i) {
      const auto input = static_cast<int>(i);
      rules::require_same_dtype(c, 0, input);
      rules::require_shape(c, input, c.inputs[0].shape);
    }
    const std::int64_t rows = out[0].shape[0], columns = parts * out[0].shape[1];
    out[0].shape = {rows, columns};
    out[1].shape = {columns, rows};
    return out;
  };
}

std::vector<Val> delayed_decomposed(Expansion e) {
  const Val x = e.inputs[0], now = largest_magnitude(e, x);
  std::vector<Val> out = codes_up_to(e, x, checked_reach(e, now, reshape(e.inputs[1], {})));
  out.push_back(reshape(now, {1}));
  return out;
}

std::vector<Val> swiglu_quantized_decomposed(Expansion e) {
  const Val y = swiglu(e.inputs[0], e.inputs[1]);
  return e.builder.call(find_op("quantize_delayed"), {y, e.inputs[2]}, e.attrs);
}

std::vector<Val> swiglu_grad_quantized_decomposed(Expansion e) {
  const std::vector<Val> both =
      e.builder.call(find_op("swiglu_grad"), {e.inputs[0], e.inputs[1], e.inputs[2]});
  return e.builder.call(find_op("quantize_delayed"), {concat(both, 1), e.inputs[3]}, e.attrs);
}

Shape scaled_product_shape(const OpCall& c) {
  const Type &a = c.inputs[0], &b = c.inputs[1];
  for (int i : {0, 1}) {
    require_codes(c, c.inputs[static_cast<std::size_t>(i)].dtype);
    rules::require_shape(c, 2 + i, {});
    rules::require_floating(c, 2 + i);
  }
  if (a.dtype == DType::kF8E5M2 && b.dtype == DType::kF8E5M2) {
    fail_usage(c.op, "both operands are f8e5m2; one f8e4m3 is expected");
  }
  if (a.shape.rank() != 2 || b.shape.rank() != 2 || a.shape[1] != b.shape[1]) {
    fail_usage(c.op, "operands {} and {}; [M,K] and [N,K] are expected", a.shape.str(),
               b.shape.str());
  }
  for (std::int64_t size : {a.shape[0], a.shape[1], b.shape[0]}) {
    if (size % kWholeRow != 0) {
      fail_usage(c.op, "operands {} and {}; multiples of {} are expected", a.shape.str(),
                 b.shape.str(), kWholeRow);
    }
  }
  return {a.shape[0], b.shape[0]};
}

std::vector<Type> scaled_product_type(const OpCall& c) {
  return {{c.attrs.dtype("dtype"), scaled_product_shape(c)}};
}

// Multiplies codes times their scales: float16 could not hold products of unscaled codes.
Val scaled_product(Expansion e, Val a, DType dtype) {
  const auto scaled = [&](Val codes, Val scale) { return mul(cast(codes, scale.dtype()), scale); };
  const Val y =
      matmul(scaled(a, e.inputs[2]), scaled(e.inputs[1], e.inputs[3]), {.transpose_b = true});
  return cast(y, dtype);
}

std::vector<Val> scaled_product_decomposed(Expansion e) {
  return {scaled_product(e, e.inputs[0], e.attrs.dtype("dtype"))};
}

// The index of the first tensor to which rows of a scaled product are added; scales are before it.
constexpr std::size_t kFirstAddend = 4;

std::vector<Type> scaled_sum_types(const OpCall& c) {
  const Shape product = scaled_product_shape(c);
  std::vector<Type> out;
  std::int64_t rows = 0;
  for (std::size_t i = kFirstAddend; i < c.inputs.size(); ++i) {
    const Type& addend = c.inputs[i];
    rules::require_floating(c, static_cast<int>(i));
    rules::require_same_dtype(c, static_cast<int>(kFirstAddend), static_cast<int>(i));
    if (addend.shape.rank() != 2 || addend.shape[1] != product[1] ||
        addend.shape[0] % kWholeRow != 0) {
      fail_usage(c.op, "c is {}; rows of {}, a multiple of {}, are expected", addend.shape.str(),
                 product[1], kWholeRow);
    }
    rows += addend.shape[0];
    out.push_back(addend);
  }
  if (rows != product[0]) {
    fail_usage(c.op, "the addends have {} rows together; {} are expected", rows, product[0]);
  }
  return out;
}

std::vector<Val> scaled_sum_decomposed(Expansion e) {
  std::vector<Val> out;
  std::int64_t start = 0;
  for (const Val c : e.inputs.subspan(kFirstAddend)) {
    const Val rows = slice(e.inputs[0], 0, start, start + c.dim(0));
    out.push_back(add(c, scaled_product(e, rows, c.dtype())));
    start += c.dim(0);
  }
  return out;
}

std::vector<Donation> scaled_sum_donations(const Attrs&, std::size_t inputs) {
  std::vector<Donation> out;
  for (std::size_t i = kFirstAddend; i < inputs; ++i)
    out.push_back({static_cast<int>(i - kFirstAddend), static_cast<int>(i)});
  return out;
}

std::vector<AttrDef> code_attrs() {
  return {{"dtype", AttrKind::kDType, std::nullopt, "of the codes"},
          {"largest", AttrKind::kReal, std::nullopt, "magnitude among the codes"}};
}

void register_computed_and_quantized() {
  const std::vector<std::string> outputs{"codes", "transposed", "scale", "largest"};
  register_op({.name = "swiglu_quantized",
               .doc = "quantize_delayed of silu(gate) · up, which is not stored.",
               .source = "Shazeer 2020, GLU Variants",
               .inputs = {"gate", "up", "last"},
               .outputs = outputs,
               .attrs = delayed_attrs(),
               .kernel_class = KernelClass::kElementwise,
               .precision_class = PrecisionClass::kKeep,
               .infer = computed_types(1),
               .accepts = rules::unit_inner_stride,
               .writes = rules::contiguous,
               .decompose = swiglu_quantized_decomposed,
               .flops = rules::per_operand(0, 6 + 3),
               .only_on_gpus = true});
  register_op({.name = "swiglu_grad_quantized",
               .doc = "quantize_delayed of the gradients of gate and up side by side, which are "
                      "not stored.",
               .inputs = {"dy", "gate", "up", "last"},
               .outputs = outputs,
               .attrs = delayed_attrs(),
               .kernel_class = KernelClass::kElementwise,
               .precision_class = PrecisionClass::kKeep,
               .infer = computed_types(2),
               .accepts = rules::unit_inner_stride,
               .writes = rules::contiguous,
               .decompose = swiglu_grad_quantized_decomposed,
               .flops = rules::per_operand(0, 12 + 6),
               .only_on_gpus = true});
}

}  // namespace

void require_codes(const OpCall& c, DType dtype) {
  if (is_float8(dtype) || dtype == DType::kF64) return;
  fail_usage(c.op, "codes of {}; f8e4m3 or f8e5m2 is expected", name_of(dtype));
}

Val largest_magnitude(const OpExpansion& e, Val x) {
  Dims axes;
  for (int i = 0; i < x.shape().rank(); ++i) axes.push_back(i);
  const Val found = max(unary("abs", x), axes);
  const Val least = constant(e, x, kLeastMagnitude);
  return binary("maximum", cast(found, least.dtype()), least);
}

Val reach_of(const OpExpansion& e, Val last) {
  return binary("minimum", affine(last, e.attrs.real("room")), constant(e, last, kMostReach));
}

Val checked_reach(const OpExpansion& e, Val now, Val last) {
  const Val reach = reach_of(e, last);
  const Val is_near = binary("le", last, affine(now, e.attrs.real("room")));
  return select(binary("le", now, reach), select(is_near, reach, now), now);
}

Val codes_below(const OpExpansion& e, Val x, Val reach) {
  const Val limit = constant(e, reach, e.attrs.real("largest"));
  return cast(mul(cast(x, reach.dtype()), div(limit, reach)), e.attrs.dtype("dtype"));
}

Val scale_of(const OpExpansion& e, Val reach) {
  return div(reach, constant(e, reach, e.attrs.real("largest")));
}

std::vector<Val> codes_up_to(const OpExpansion& e, Val x, Val reach) {
  const Val codes = codes_below(e, x, reach);
  return {codes, copy(permute(codes, {1, 0})), scale_of(e, reach)};
}

std::vector<AttrDef> delayed_attrs() {
  std::vector<AttrDef> out = code_attrs();
  out.push_back({"room", AttrKind::kReal, std::nullopt,
                 "how many times as large, or small, magnitudes may be for the scale to fit"});
  return out;
}

void register_float8() {
  register_computed_and_quantized();
  register_op({.name = "quantize",
               .doc =
                   "x / scale in 8 bits, rounded to nearest even and saturated, and its transpose; "
                   "scale = max|x| / largest.",
               .source = "Micikevicius et al. 2022, section 3",
               .inputs = {"x"},
               .outputs = {"codes", "transposed", "scale"},
               .attrs = code_attrs(),
               .kernel_class = KernelClass::kElementwise,
               .precision_class = PrecisionClass::kKeep,
               .infer = quantized_types,
               .accepts = rules::unit_inner_stride,
               .decompose = quantize_decomposed,
               .flops = rules::per_operand(0, 3),
               .only_on_gpus = true});

  register_op(
      {.name = "quantize_delayed",
       .doc =
           "quantize with scale = room · last / largest, where last is the largest magnitude of a "
           "step before; where max|x| is more than room times as large, or as small, and where "
           "last is 0, with the scale of x. The result `largest` is max|x|.",
       .source = "Micikevicius et al. 2022, section 3",
       .inputs = {"x", "last"},
       .outputs = {"codes", "transposed", "scale", "largest"},
       .attrs = delayed_attrs(),
       .kernel_class = KernelClass::kElementwise,
       .precision_class = PrecisionClass::kKeep,
       .infer = delayed_types,
       .accepts = rules::unit_inner_stride,
       .writes = rules::contiguous,
       .decompose = delayed_decomposed,
       .flops = rules::per_operand(0, 3),
       .only_on_gpus = true});

  register_op(
      {.name = "scaled_matmul",
       .doc = "a_scale · b_scale · A·Bᵀ of 8-bit codes a [M,K] and b [N,K], all three "
              "multiples of 16.",
       .source = "Micikevicius et al. 2022, section 3",
       .inputs = {"a", "b", "a_scale", "b_scale"},
       .outputs = {"y"},
       .attrs = {{"dtype", AttrKind::kDType, std::nullopt, "of the result"}},
       .kernel_class = KernelClass::kGemm,
       .precision_class = PrecisionClass::kKeep,
       .infer = scaled_product_type,
       .accepts = rules::contiguous,
       .decompose = scaled_product_decomposed,
       .flops = [](const OpCall& c) { return 2 * c.outputs[0].count() * c.inputs[0].shape[1]; },
       .only_on_gpus = true});

  register_op(
      {.name = "scaled_matmul_add",
       .doc = "Rows of scaled_matmul added to each C in their order, rounded once, in the dtype of "
              "the Cs; written over each C that dies. One product where the Cs follow one another "
              "in memory.",
       .source = "Micikevicius et al. 2022, section 3",
       .inputs = {"a", "b", "a_scale", "b_scale", "cs..."},
       .outputs = {"ys..."},
       .kernel_class = KernelClass::kGemm,
       .precision_class = PrecisionClass::kKeep,
       .infer = scaled_sum_types,
       .accepts = rules::contiguous,
       .decompose = scaled_sum_decomposed,
       .flops = [](const OpCall& c) { return 2 * c.inputs[0].count() * c.inputs[1].shape[0]; },
       .donates_in_groups = scaled_sum_donations,
       .only_on_gpus = true});
}

}  // namespace tracestep::ops
