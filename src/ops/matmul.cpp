// Matrix product, batched, with either operand read transposed; alone, added to a tensor, its rows
// added to several, or with a bias added to each row.
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

struct Sides {
  std::int64_t m, n, k_a, k_b;
};

Sides sides(const OpCall& c) {
  const Shape& a = c.inputs[0].shape;
  const Shape& b = c.inputs[1].shape;
  const bool ta = c.attrs.flag("transpose_a"), tb = c.attrs.flag("transpose_b");
  return {ta ? a.back(0) : a.back(1), tb ? b.back(1) : b.back(0), ta ? a.back(1) : a.back(0),
          tb ? b.back(0) : b.back(1)};
}

std::vector<Type> product_type(const OpCall& c) {
  rules::require_floating(c, 0);
  rules::require_same_dtype(c, 0, 1);
  rules::require_min_rank(c, 0, 2);
  rules::require_min_rank(c, 1, 2);
  const Shape& a = c.inputs[0].shape;
  const Shape& b = c.inputs[1].shape;
  const Sides s = sides(c);
  if (s.k_a != s.k_b) {
    const bool other = c.attrs.flag("transpose_b") ? b.back(1) == s.k_a : b.back(0) == s.k_a;
    throw Error(ErrorCode::kUsage, c.op,
                fmt::format("inner sizes differ: lhs {}, rhs {}", a.str(), b.str()),
                other ? "did you mean transpose_b?" : "");
  }
  if (a.rank() != b.rank()) {
    fail_usage(c.op, "ranks differ: lhs {}, rhs {}; reshape one of them", a.str(), b.str());
  }
  Shape out = a;
  for (int i = 0; i < a.rank() - 2; ++i) {
    if (a[i] != b[i]) {
      fail_usage(c.op, "batch sizes differ: lhs {}, rhs {}", a.str(), b.str());
    }
  }
  out[out.rank() - 2] = s.m;
  out[out.rank() - 1] = s.n;
  return {{c.inputs[0].dtype, out}};
}

// Accepts what every GEMM library takes: one unit stride among the last two dimensions (the other
// at least as long as a row), and batch dimensions that collapse to one stride.
bool gemm_operand(int, const Type& type, const Strides& strides) {
  const Shape& shape = type.shape;
  const int r = shape.rank();
  if (type.count() == 0) return true;
  const std::int64_t rows = shape[r - 2], cols = shape[r - 1];
  const bool by_rows = (cols == 1 || strides[r - 1] == 1) && (rows == 1 || strides[r - 2] >= cols);
  const bool by_cols = (rows == 1 || strides[r - 2] == 1) && (cols == 1 || strides[r - 1] >= rows);
  if (!by_rows && !by_cols) return false;
  std::int64_t expected = -1;
  for (int i = r - 3; i >= 0; --i) {
    if (shape[i] == 1) continue;
    if (expected >= 0 && strides[i] != expected) return false;
    expected = strides[i] * shape[i];
  }
  return true;
}

std::vector<Val> product_gradient(const OpExpansion& e) {
  const Val a = e.inputs[0], b = e.inputs[1], g = e.output_grads[0];
  const bool ta = e.attrs.flag("transpose_a"), tb = e.attrs.flag("transpose_b");
  std::vector<Val> out(2);
  // C = A' B', with ' the optional transpose: dA' = G B'^T, dB' = A'^T G.
  if (e.wanted[0]) out[0] = ta ? matmul(b, g, {tb, true}) : matmul(g, b, {false, !tb});
  if (e.wanted[1]) out[1] = tb ? matmul(g, a, {true, ta}) : matmul(a, g, {!ta, false});
  return out;
}

// Returns the FLOPs of the product without what is added to it, as a model's formula counts them.
std::int64_t product_flops(const OpCall& c) {
  return 2 * c.outputs[0].count() * sides(c).k_a;
}

// Throws unless an addend has the dtype of the product or that of its sums.
void require_sum_dtype(const OpCall& c, DType product, DType addend) {
  const DType wide = rules::accumulation_dtype(product);
  if (addend == product || addend == wide) return;
  fail_usage(c.op, "a product of {} is added to {}; {} or {} is expected", name_of(product),
             name_of(addend), name_of(product), name_of(wide));
}

std::vector<Type> sum_type(const OpCall& c) {
  const Type product = product_type(c)[0];
  const Type& addend = c.inputs[2];
  rules::require_shape(c, 2, product.shape);
  require_sum_dtype(c, product.dtype, addend.dtype);
  return {addend};
}

bool sum_operand(int input, const Type& type, const Strides& strides) {
  return input == 2 ? rules::contiguous(input, type, strides) : gemm_operand(input, type, strides);
}

Val scaled_addend(const OpExpansion& e, Val c) {
  const double beta = e.attrs.real("beta");
  return beta == 1.0 ? c : affine(c, beta);
}

std::vector<Val> sum_decomposed(const OpExpansion& e) {
  const Val product =
      matmul(e.inputs[0], e.inputs[1], {e.attrs.flag("transpose_a"), e.attrs.flag("transpose_b")});
  return {add(scaled_addend(e, e.inputs[2]), cast(product, e.inputs[2].dtype()))};
}

// The index of the first tensor to which rows of a product are added, after operands a and b.
constexpr std::size_t kFirstAddend = 2;

std::vector<Type> added_rows_type(const OpCall& c) {
  const Type product = product_type(c)[0];
  if (product.shape.rank() != 2) {
    fail_usage(c.op, "a is {}; a matrix is expected", c.inputs[0].shape.str());
  }
  std::vector<Type> out;
  std::int64_t rows = 0;
  for (std::size_t i = kFirstAddend; i < c.inputs.size(); ++i) {
    const Type& addend = c.inputs[i];
    if (addend.shape.rank() != 2 || addend.shape[1] != product.shape[1]) {
      fail_usage(c.op, "c is {}; rows of {} are expected", addend.shape.str(), product.shape[1]);
    }
    require_sum_dtype(c, product.dtype, addend.dtype);
    rules::require_same_dtype(c, static_cast<int>(kFirstAddend), static_cast<int>(i));
    rows += addend.shape[0];
    out.push_back(addend);
  }
  if (rows != product.shape[0]) {
    fail_usage(c.op, "the addends have {} rows together; {} are expected", rows, product.shape[0]);
  }
  return out;
}

bool added_rows_operand(int input, const Type& type, const Strides& strides) {
  return input >= static_cast<int>(kFirstAddend) ? rules::contiguous(input, type, strides)
                                                 : gemm_operand(input, type, strides);
}

std::vector<Val> added_rows_decomposed(const OpExpansion& e) {
  const bool ta = e.attrs.flag("transpose_a"), tb = e.attrs.flag("transpose_b");
  std::vector<Val> out;
  std::int64_t start = 0;
  for (const Val c : e.inputs.subspan(kFirstAddend)) {
    const Val rows = slice(e.inputs[0], ta ? 1 : 0, start, start + c.dim(0));
    const Val product = cast(matmul(rows, e.inputs[1], {ta, tb}), c.dtype());
    out.push_back(add(scaled_addend(e, c), product));
    start += c.dim(0);
  }
  return out;
}

std::vector<Donation> added_rows_donations(const Attrs&, std::size_t inputs) {
  std::vector<Donation> out;
  for (std::size_t i = kFirstAddend; i < inputs; ++i)
    out.push_back({static_cast<int>(i - kFirstAddend), static_cast<int>(i)});
  return out;
}

std::int64_t added_rows_flops(const OpCall& c) {
  std::int64_t out = 0;
  for (const Type& y : c.outputs) out += 2 * y.count() * sides(c).k_a;
  return out;
}

// Returns the type of a product with a bias for each column, and checks that the bias fits.
std::vector<Type> biased_type(const OpCall& c) {
  const std::vector<Type> product = product_type(c);
  const Shape& y = product[0].shape;
  if (y.rank() != 2) fail_usage(c.op, "a is {}; a matrix is expected", c.inputs[0].shape.str());
  rules::require_same_dtype(c, 0, 2);
  rules::require_shape(c, 2, {y[1]});
  return product;
}

bool biased_operand(int input, const Type& type, const Strides& strides) {
  return input == 2 ? rules::contiguous(input, type, strides) : gemm_operand(input, type, strides);
}

std::vector<Val> biased_gradient(const OpExpansion& e) {
  std::vector<Val> out = product_gradient(e);
  out.push_back(e.wanted[2] ? sum(e.output_grads[0], {0}) : Val{});
  return out;
}

std::vector<Val> biased_parts(const OpExpansion& e) {
  return {add(
      matmul(e.inputs[0], e.inputs[1], {e.attrs.flag("transpose_a"), e.attrs.flag("transpose_b")}),
      e.inputs[2])};
}

const std::vector<AttrDef> kTransposes{
    {"transpose_a", AttrKind::kBool, AttrValue(false), "a is [...,K,M]"},
    {"transpose_b", AttrKind::kBool, AttrValue(false), "b is [...,N,K]"}};
const std::vector<AttrDef> kAttrs{
    kTransposes[0],
    kTransposes[1],
    {"by_parts", AttrKind::kBool, AttrValue(false),
     "f32 as products of f16 parts, where the device has that (docs/precision.md)"}};
const std::vector<AttrDef> kSumAttrs{
    kAttrs[0],
    kAttrs[1],
    kAttrs[2],
    {"beta", AttrKind::kReal, AttrValue(1.0), "the factor of what is added to"}};

ProductAxes product_axes(const OpCall& c) {
  const bool ta = c.attrs.flag("transpose_a"), tb = c.attrs.flag("transpose_b");
  const int last = c.inputs[0].shape.rank() - 1;
  return {.rows = ta ? last : last - 1,
          .columns = tb ? last - 1 : last,
          .summed = {ta ? last - 1 : last, tb ? last : last - 1}};
}

}  // namespace

void register_matmul() {
  register_op({.name = "matmul",
               .doc = "Batched matrix product A·B, accumulated in float32 (float64 for f64).",
               .inputs = {"a", "b"},
               .outputs = {"y"},
               .attrs = kAttrs,
               .kernel_class = KernelClass::kGemm,
               .precision_class = PrecisionClass::kLow,
               .infer = product_type,
               .accepts = gemm_operand,
               .writes = rules::contiguous,
               .gradient = product_gradient,
               .flops = product_flops,
               .product = product_axes});

  register_op({.name = "matmul_add",
               .doc = "beta·C + A·B in the dtype of C, rounded once; written over C where C dies.",
               .inputs = {"a", "b", "c"},
               .outputs = {"y"},
               .attrs = kSumAttrs,
               .kernel_class = KernelClass::kGemm,
               .precision_class = PrecisionClass::kLow,
               .infer = sum_type,
               .accepts = sum_operand,
               .decompose = sum_decomposed,
               .flops = product_flops,
               .donates = {{0, 2}}});

  register_op({.name = "matmul_add_rows",
               .doc =
                   "Rows of A·B added to each beta·C in their order, rounded once, in the dtype of "
                   "the Cs; written over each C that dies. One product where the Cs follow one "
                   "another in memory.",
               .inputs = {"a", "b", "cs..."},
               .outputs = {"ys..."},
               .attrs = kSumAttrs,
               .kernel_class = KernelClass::kGemm,
               .precision_class = PrecisionClass::kLow,
               .infer = added_rows_type,
               .accepts = added_rows_operand,
               .decompose = added_rows_decomposed,
               .flops = added_rows_flops,
               .donates_in_groups = added_rows_donations});

  register_op({.name = "matmul_bias",
               .doc = "A·B and a bias added to each row, rounded once: a linear layer, which "
                      "autocast casts as a whole. Other programs have a product and a sum.",
               .inputs = {"a", "b", "bias"},
               .outputs = {"y"},
               .attrs = kTransposes,
               .kernel_class = KernelClass::kGemm,
               .precision_class = PrecisionClass::kLow,
               .infer = biased_type,
               .accepts = biased_operand,
               .writes = rules::contiguous,
               .gradient = biased_gradient,
               .decompose = biased_parts,
               .flops = product_flops,
               .product = product_axes});
}

}  // namespace tracestep::ops
