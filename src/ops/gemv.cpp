// The product of one row with a matrix of weights, joined with the norm, gates, bias, activation or
// sum around it.
#include <fmt/ranges.h>

#include "ops/functions.h"
#include "ops/gemv.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

void check_names(const OpCall& c) {
  const auto require = [&](const char* attr, std::initializer_list<const char*> known) {
    const std::string& name = c.attrs.text(attr);
    for (const char* one : known) {
      if (name == one) return;
    }
    fail_usage(c.op, "{} '{}'; {}", attr, name, fmt::join(known, ", "));
  };
  require("norm", {"none", "rms", "layer"});
  require("activation", {"none", "silu", "gelu", "gelu_erf", "relu"});
  if (c.attrs.flag("shifted") && c.attrs.text("norm") != "layer") {
    fail_usage(c.op, "a shift without a layer norm");
  }
}

std::vector<Type> result_type(const OpCall& c) {
  check_names(c);
  const GemvOperands at(c.attrs);
  if (static_cast<int>(c.inputs.size()) != at.count) {
    fail_usage(c.op, "{} operands; {} for these attributes", c.inputs.size(), at.count);
  }
  rules::require_floating(c, 0);
  rules::require_min_rank(c, 0, 1);
  for (int i = 1; i < at.count; ++i) rules::require_same_dtype(c, 0, i);
  const Type& x = c.inputs[0];
  const std::int64_t k = x.shape.back();
  if (x.count() != k) fail_usage(c.op, "{} is more than one row", x.shape.str());
  const std::int64_t rows_held = at.scale < 0 ? 1 : at.shift < 0 ? 2 : 3;
  const bool is_long = x.dtype != DType::kF64 && x.bytes() * rows_held > kMostGemvBytes;
  if (k < 1 || k % kGemvWord != 0 || is_long) {
    fail_usage(c.op, "a row of {} elements; a multiple of {}, with the norm's up to {} bytes", k,
               kGemvWord, kMostGemvBytes);
  }
  const Shape& w = c.inputs[1].shape;
  const std::int64_t rows = w.rank() == 2 ? w[0] : 0;
  rules::require_shape(c, 1, {rows, k});
  const bool gated = c.attrs.flag("gated");
  if (rows < 1 || (gated && rows % 2 != 0)) {
    fail_usage(c.op, "{} rows of weights{}", rows, gated ? ", of which half are gates" : "");
  }
  for (int i : {at.scale, at.shift}) {
    if (i >= 0) rules::require_shape(c, i, {k});
  }
  if (at.bias >= 0) rules::require_shape(c, at.bias, {rows});
  Shape y = x.shape;
  y[y.rank() - 1] = gated ? rows / 2 : rows;
  if (at.c >= 0) rules::require_shape(c, at.c, y);
  return {{x.dtype, y}};
}

Val normalised(const OpExpansion& e, const GemvOperands& at) {
  const Val x = e.inputs[0];
  if (at.scale < 0) return x;
  const auto operand = [&](int i) { return i < 0 ? Val{} : e.inputs[static_cast<std::size_t>(i)]; };
  const double offset = e.attrs.real("offset"), eps = e.attrs.real("eps");
  const Val scale = offset == 0.0 ? operand(at.scale) : affine(operand(at.scale), 1.0, offset);
  return e.attrs.text("norm") == "rms" ? rms_norm(x, scale, eps)
                                       : layer_norm(x, scale, operand(at.shift), eps);
}

std::vector<Val> parts(const OpExpansion& e) {
  const GemvOperands at(e.attrs);
  Val y = linear(normalised(e, at), e.inputs[1]);
  if (at.bias >= 0) y = add(y, e.inputs[static_cast<std::size_t>(at.bias)]);
  const int last = y.shape().rank() - 1;
  const std::string& activation = e.attrs.text("activation");
  const auto activated = [&](Val x) { return activation == "none" ? x : unary(activation, x); };
  if (e.attrs.flag("gated")) {
    const std::int64_t half = y.dim(-1) / 2;
    const Val gate = slice(y, last, 0, half), up = slice(y, last, half, 2 * half);
    y = mul(activated(gate), up);
  } else {
    y = activated(y);
  }
  if (at.c >= 0) y = add(e.inputs[static_cast<std::size_t>(at.c)], y);
  return {y};
}

std::vector<Donation> donated(const Attrs& attrs, std::size_t) {
  const GemvOperands at(attrs);
  if (at.c < 0) return {};
  return {{0, at.c}};
}

}  // namespace

void register_gemv() {
  register_op(
      {.name = "gemv",
       .doc =
           "act(norm(x) · wᵀ + bias) + c for one row x [.., k] and w [rows, k]; gated: act(gate) "
           "· up, of which the first half of the rows makes the gates. Operands: x, w, the "
           "norm's scale and shift, bias, c.",
       .inputs = {"xs..."},
       .outputs = {"y"},
       .attrs = {{"norm", AttrKind::kText, AttrValue(std::string("none")), "none, rms or layer"},
                 {"eps", AttrKind::kReal, AttrValue(1e-5), "of the norm"},
                 {"offset", AttrKind::kReal, AttrValue(0.0), "added to the norm's scale"},
                 {"shifted", AttrKind::kBool, AttrValue(false), "the layer norm has a shift"},
                 {"biased", AttrKind::kBool, AttrValue(false), "there is a bias [rows]"},
                 {"activation", AttrKind::kText, AttrValue(std::string("none")),
                  "none, silu, gelu, gelu_erf or relu"},
                 {"gated", AttrKind::kBool, AttrValue(false), "the second half is gated"},
                 {"added", AttrKind::kBool, AttrValue(false), "there is a c, as y"},
                 {"early", AttrKind::kBool, AttrValue(false),
                  "no node writes w, scale, shift or bias: they may be read before earlier nodes "
                  "have run"}},
       .kernel_class = KernelClass::kGemm,
       .precision_class = PrecisionClass::kKeep,
       .infer = result_type,
       .accepts = rules::contiguous,
       .decompose = parts,
       .flops = [](const OpCall& c) { return 2 * c.inputs[1].count(); },
       .donates_in_groups = donated,
       .only_on_gpus = true,
       .stays_whole = true});
}

}  // namespace tracestep::ops
