// 8-bit codes of weights that an update writes for the products of the next step, and the check at
// the beginning of that step.
#include "ops/adamw_calls.h"
#include "ops/float8_codes.h"
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

// How many operands refresh_codes has for each weight, after `found`, and how many results.
constexpr std::size_t kGroup = 4;  // w, last, codes, transposed; codes, transposed, scale, largest

// Both sizes of a weight are multiples of this: rows of 8-bit operands begin at whole 16 bytes.
constexpr std::int64_t kWhole = 16;

std::vector<AttrDef> weight_code_attrs() {
  std::vector<AttrDef> out = delayed_attrs();
  out.push_back({"through", AttrKind::kDType, std::nullopt,
                 "dtype to which weights are rounded before they are quantized"});
  return out;
}

// Throws unless codes are f8e4m3 of weights rounded to bf16, or nothing is rounded (both f64).
void require_weight_codes(const OpCall& c) {
  const DType dtype = c.attrs.dtype("dtype"), through = c.attrs.dtype("through");
  const bool is_exact = dtype == DType::kF64 && through == DType::kF64;
  if (is_exact || (dtype == DType::kF8E4M3 && through == DType::kBF16)) return;
  fail_usage(c.op, "codes of {} through {}; f8e4m3 through bf16 is expected", name_of(dtype),
             name_of(through));
}

void require_code_pair(const OpCall& c, std::size_t codes, const Shape& shape) {
  for (std::size_t i : {codes, codes + 1}) {
    const DType dtype = c.inputs[i].dtype;
    if (dtype == c.attrs.dtype("dtype") || dtype == DType::kF64) continue;
    fail_usage(c.op, "operand {} is {}; {} is expected", i, c.inputs[i].str(),
               name_of(c.attrs.dtype("dtype")));
  }
  rules::require_shape(c, static_cast<int>(codes), shape);
  rules::require_shape(c, static_cast<int>(codes + 1), {shape[1], shape[0]});
}

void require_matrix(const OpCall& c, std::size_t i) {
  rules::require_floating(c, static_cast<int>(i));
  const Shape& w = c.inputs[i].shape;
  if (w.rank() == 2 && w[0] % kWhole == 0 && w[1] % kWhole == 0) return;
  fail_usage(c.op, "a weight is {}; two dimensions, multiples of {}, are expected", w.str(),
             kWhole);
}

// Rounds w to the dtype `through`; the result is in the dtype of w.
Val rounded(Expansion e, Val w) {
  return cast(cast(w, e.attrs.dtype("through")), w.dtype());
}

// Returns the result types of refresh_codes: each weight's codes, transposed codes, scale, largest.
std::vector<Type> refresh_type(const OpCall& c) {
  const std::size_t weights = (c.inputs.size() - 1) / kGroup;
  if (weights == 0 || 1 + weights * kGroup != c.inputs.size()) {
    fail_usage(c.op, "{} operands do not make groups of {} after the first", c.inputs.size(),
               kGroup);
  }
  require_weight_codes(c);
  rules::require_shape(c, 0, {static_cast<std::int64_t>(weights), 2});
  std::vector<Type> out;
  for (std::size_t i = 1; i < c.inputs.size(); i += kGroup) {
    require_matrix(c, i);
    rules::require_shape(c, static_cast<int>(i + 1), {1});
    if (c.inputs[i].dtype != c.inputs[i + 1].dtype) {
      fail_usage(c.op, "a weight is {}; {} is expected", c.inputs[i].str(),
                 name_of(c.inputs[i + 1].dtype));
    }
    require_code_pair(c, i + 2, c.inputs[i].shape);
    const Type& last = c.inputs[i + 1];
    const DType codes = c.attrs.dtype("dtype");
    out.insert(
        out.end(),
        {{codes, c.inputs[i + 2].shape}, {codes, c.inputs[i + 3].shape}, {last.dtype, {}}, last});
  }
  return out;
}

std::vector<Val> refresh_decomposed(Expansion e) {
  Attrs attrs;
  for (const AttrDef& attr : delayed_attrs()) attrs.set(attr.name, *e.attrs.find(attr.name));
  std::vector<Val> out;
  for (std::size_t i = 1; i < e.inputs.size(); i += kGroup) {
    const std::vector<Val> made = e.builder.call(find_op("quantize_delayed"),
                                                 {rounded(e, e.inputs[i]), e.inputs[i + 1]}, attrs);
    out.insert(out.end(), made.begin(), made.end());
  }
  return out;
}

std::vector<Donation> refresh_donations(const Attrs&, std::size_t inputs) {
  std::vector<Donation> out;
  for (std::size_t i = 1; i < inputs; i += kGroup) {
    const auto to = static_cast<int>(i - 1), from = static_cast<int>(i + 2);
    out.push_back({to, from});
    out.push_back({to + 1, from + 1});
  }
  return out;
}

// Returns the bytes read where the codes still fit: `found` and the magnitudes.
std::int64_t refresh_bytes_read(const OpCall& c) {
  std::int64_t out = c.inputs[0].bytes();
  for (std::size_t i = 1; i < c.inputs.size(); i += kGroup) out += c.inputs[i + 1].bytes();
  return out;
}

std::int64_t refresh_bytes_written(const OpCall& c) {
  std::int64_t out = 0;
  for (std::size_t i = 0; i < c.outputs.size(); i += kGroup) {
    out += c.outputs[i + 2].bytes() + c.outputs[i + 3].bytes();
  }
  return out;
}

void register_refresh_codes() {
  register_op(
      {.name = "refresh_codes",
       .doc = "quantize_delayed of many weights, rounded to another dtype first. Codes and "
              "transposed codes that adamw_codes left, with what it found, are kept where their "
              "scale fits; all are made anew where found is 0. Operands and results are groups: "
              "w, last, codes, transposed; codes, transposed, scale, largest.",
       .source = "Micikevicius et al. 2022, section 3",
       .inputs = {"found", "xs..."},
       .outputs = {"xs_new..."},
       .attrs = weight_code_attrs(),
       .kernel_class = KernelClass::kOptimizer,
       .precision_class = PrecisionClass::kKeep,
       .infer = refresh_type,
       .accepts = rules::contiguous,
       .writes = rules::contiguous,
       .decompose = refresh_decomposed,
       .bytes_read = refresh_bytes_read,
       .bytes_written = refresh_bytes_written,
       .donates_in_groups = refresh_donations,
       .only_on_gpus = true});
}

// --- the update that writes codes ---------------------------------------------------------------
// Returns the shape of a block, which has the rows of all its parts, and checks their columns.
Shape shape_of(const OpCall& c, const AdamwBlocks& blocks, std::size_t block) {
  require_matrix(c, blocks.part(block, 0));
  Shape out = c.inputs[blocks.part(block, 0)].shape;
  for (std::size_t i = 1; i < blocks.parts; ++i) {
    const std::size_t p = blocks.part(block, i);
    require_matrix(c, p);
    if (c.inputs[p].shape[1] != out[1]) {
      fail_usage(c.op, "parts {} and {} of a block; columns are expected to be as many",
                 c.inputs[blocks.part(block, 0)].shape.str(), c.inputs[p].shape.str());
    }
    out[0] += c.inputs[p].shape[0];
  }
  return out;
}

std::vector<Type> adamw_codes_type(const OpCall& c) {
  const AdamwBlocks blocks = adamw_blocks(c.attrs, c.inputs.size());
  if (blocks.parts == 0 || blocks.count == 0 || blocks.inputs() != c.inputs.size()) {
    fail_usage(c.op, "{} operands do not make blocks of {} tensors", c.inputs.size(), blocks.parts);
  }
  require_weight_codes(c);
  require_factors(c, blocks.factors);
  rules::require_shape(c, static_cast<int>(blocks.found()),
                       {static_cast<std::int64_t>(blocks.count), 2});
  std::vector<Type> out{c.inputs[blocks.found()]};
  for (std::size_t b = 0; b < blocks.count; ++b) {
    for (std::size_t i = 0; i < blocks.parts; ++i) {
      const std::size_t p = blocks.part(b, i);
      require_group(c, blocks.factors, p, 4);
      for (std::size_t k = 0; k < 4; ++k) {
        rules::require_same_dtype(c, static_cast<int>(p + k),
                                  static_cast<int>(blocks.part(0, 0) + k));
      }
      out.insert(out.end(), {c.inputs[p], c.inputs[p + 2], c.inputs[p + 3]});
    }
    require_code_pair(c, blocks.codes(b), shape_of(c, blocks, b));
    rules::require_shape(c, static_cast<int>(blocks.largest(b)), {1});
    for (std::size_t codes : {blocks.codes(b), blocks.transposed(b)}) {
      out.push_back({c.attrs.dtype("dtype"), c.inputs[codes].shape});
    }
  }
  return out;
}

std::vector<Val> adamw_codes_decomposed(Expansion e) {
  const AdamwBlocks blocks = adamw_blocks(e.attrs, e.inputs.size());
  std::vector<Val> out(1), found;
  for (std::size_t b = 0; b < blocks.count; ++b) {
    std::vector<Val> weights;
    for (std::size_t i = 0; i < blocks.parts; ++i) {
      const std::vector<Val> updated = adamw_of(e, blocks.factors, blocks.part(b, i));
      out.insert(out.end(), updated.begin(), updated.end());
      weights.push_back(updated[0]);
    }
    const Val w = rounded(e, blocks.parts == 1 ? weights[0] : concat(weights, 0)),
              last = e.inputs[blocks.largest(b)];
    const std::vector<Val> made = codes_up_to(e, w, reach_of(e, reshape(last, {})));
    out.insert(out.end(), {made[0], made[1]});
    found.push_back(reshape(largest_magnitude(e, w), {1, 1}));
    found.push_back(reshape(last, {1, 1}));
  }
  const auto count = static_cast<std::int64_t>(blocks.count);
  out[0] = reshape(concat(found, 0), {count, 2});
  return out;
}

std::vector<Donation> adamw_codes_donations(const Attrs& attrs, std::size_t inputs) {
  const AdamwBlocks blocks = adamw_blocks(attrs, inputs);
  std::vector<Donation> out;
  const auto add = [&](std::size_t output, std::size_t input) {
    out.push_back({static_cast<int>(output), static_cast<int>(input)});
  };
  add(0, blocks.found());
  for (std::size_t b = 0; b < blocks.count; ++b) {
    for (std::size_t i = 0; i < blocks.parts; ++i) {
      donate_group(out, blocks.new_part(b, i), blocks.part(b, i));
    }
    add(blocks.new_codes(b), blocks.codes(b));
    add(blocks.new_codes(b) + 1, blocks.transposed(b));
  }
  return out;
}

// Returns the number of elements of all weights.
std::int64_t elements_of(const OpCall& c) {
  const AdamwBlocks blocks = adamw_blocks(c.attrs, c.inputs.size());
  std::int64_t out = 0;
  for (std::size_t b = 0; b < blocks.count; ++b) out += c.inputs[blocks.codes(b)].count();
  return out;
}

std::int64_t adamw_codes_bytes_read(const OpCall& c) {
  const AdamwBlocks blocks = adamw_blocks(c.attrs, c.inputs.size());
  std::int64_t out = 0;
  for (const Type& type : c.inputs) out += type.bytes();
  out -= c.inputs[blocks.found()].bytes();
  for (std::size_t b = 0; b < blocks.count; ++b) {
    out -= c.inputs[blocks.codes(b)].bytes() + c.inputs[blocks.transposed(b)].bytes();
  }
  return out;
}

void register_adamw_codes() {
  std::vector<AttrDef> attrs = adamw_factors();
  for (AttrDef& attr : optional_operands()) attrs.push_back(std::move(attr));
  attrs.push_back({"parts", AttrKind::kInt, std::nullopt, "tensors of a block"});
  for (AttrDef& attr : weight_code_attrs()) attrs.push_back(std::move(attr));
  register_op(
      {.name = "adamw_codes",
       .doc = "adamw of blocks of matrices, and the codes of a block, its parts one below the "
              "other: with scale = room · largest / the largest code, where largest is the largest "
              "magnitude before the update. The operands go on with grad_scale, apply and count, "
              "where there are such, found, and blocks: p, grad, m, v of each part, codes, "
              "transposed and largest; the results are found and blocks p, m, v of each part, "
              "codes and transposed. found has a row for each block: the largest magnitude after "
              "the update, and before it. The old codes and found are not read.",
       .source = "Loshchilov and Hutter 2019, alg. 2; Micikevicius et al. 2022, section 3",
       .inputs = {"lr", "step_size", "xs..."},
       .outputs = {"xs_new..."},
       .attrs = std::move(attrs),
       .kernel_class = KernelClass::kOptimizer,
       .precision_class = PrecisionClass::kFull,
       .composite = Composite::kOptimizer,
       .infer = adamw_codes_type,
       .accepts = rules::contiguous,
       .decompose = adamw_codes_decomposed,
       .flops = [](const OpCall& c) { return (14 + 3) * elements_of(c); },
       .bytes_read = adamw_codes_bytes_read,
       .donates_in_groups = adamw_codes_donations,
       .only_on_gpus = true});
}

}  // namespace

void register_weight_codes() {
  register_refresh_codes();
  register_adamw_codes();
}

}  // namespace tracestep::ops
