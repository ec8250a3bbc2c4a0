// Products, reductions and gathers.
#include "backends/op_cases.h"

namespace tracestep::testing {
namespace {

constexpr auto kTransposed = Stored::kTransposed;
constexpr auto kSliced = Stored::kSliced;
constexpr auto kBroadcast = Stored::kBroadcast;
constexpr auto kHeads = Stored::kHeads;
constexpr auto kReshaped = Stored::kReshaped;

OpCase reduced(Operand x, Dims axes, bool keepdims = false) {
  return {{x}, {{"axes", axes}, {"keepdims", keepdims}}};
}

std::vector<OpCase> reduction_cases() {
  return {reduced(plain({1031}), {0}), reduced(plain({5, 7}), {1}),
          reduced(plain({5, 7}), {0}, true), reduced(plain({5, 7}), {1, 0}),
          reduced(plain({5, 7}), {}), reduced(plain({}), {}), reduced(plain({1, 1}), {-1}, true),
          reduced(plain({0, 3}), {1}), reduced(plain({0, 3}), {0}), reduced(plain({129, 257}), {0}),
          reduced(plain({129, 257}), {1}), reduced(plain({200003}), {0}),
          reduced(plain({4099, 35}), {0}), reduced(plain({3, 70001}), {1}),
          reduced(plain({3, 4, 17}), {0, 2}), reduced(plain({2, 3, 5, 7}), {1, 3}, true),
          reduced(stored({33, 19}, kTransposed), {0}), reduced(stored({33, 19}, kTransposed), {1}),
          reduced(stored({3, 5, 17}, kSliced), {1}), reduced(stored({3, 5, 17}, kSliced), {-1}),
          reduced(stored({31, 13}, kBroadcast), {0}), reduced(stored({2, 3, 5, 9}, kHeads), {2, 3}),
          // Whole packs of neighbouring results or elements, and few results of many elements.
          reduced(plain({2048, 64}), {0}), reduced(plain({3, 40, 64}), {1}),
          reduced(plain({5, 16, 8, 32}), {0, 2}), reduced(plain({7, 2304}), {1}),
          reduced(plain({3, 65536}), {1}), reduced(plain({4, 4096}), {0}),
          reduced(stored({6, 64, 3, 16}, kHeads), {1}),
          reduced(stored({65, 1000}, kSliced), {0, 1})};
}

// And sums of narrow operands that are not rounded to their dtype, in one part and in several.
std::vector<OpCase> sum_cases() {
  std::vector<OpCase> wide{
      reduced(plain({5, 7}), {1}),     reduced(plain({129, 257}), {0}),
      reduced(plain({7, 2304}), {1}),  reduced(plain({3, 40, 64}), {1}),
      reduced(plain({4099, 35}), {0}), reduced(plain({2048, 64}), {0}),
      reduced(plain({0, 3}), {0}),     reduced(stored({65, 1000}, kSliced), {0})};
  for (OpCase& c : wide) c.attrs.set("wide", true);
  std::vector<OpCase> out = reduction_cases();
  out.insert(out.end(), wide.begin(), wide.end());
  return out;
}

OpCase product(Operand a, Operand b, bool transpose_a = false, bool transpose_b = false) {
  return {{a, b}, {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}}};
}

// Sizes of 1 leave a stride without meaning, which libraries are picky about: every combination of
// them, of transposes, and of how far rows lie apart.
std::vector<OpCase> products_of_ones() {
  constexpr std::int64_t kMore = 5;
  std::vector<OpCase> out;
  for (int bits = 0; bits < 32; ++bits) {
    const auto size = [&](int bit) { return (bits & bit) != 0 ? kMore : std::int64_t{1}; };
    const std::int64_t m = size(1), n = size(2), k = size(4);
    const bool ta = (bits & 8) != 0, tb = (bits & 16) != 0;
    const Dims a = ta ? Dims{k, m} : Dims{m, k}, b = tb ? Dims{n, k} : Dims{k, n};
    for (const Stored how : {Stored::kPlain, kSliced, kTransposed, kReshaped}) {
      out.push_back(product(stored({a[0], a[1]}, how), stored({b[0], b[1]}, how), ta, tb));
    }
    for (const std::int64_t batch : {1, 3}) {
      out.push_back(product(plain({batch, a[0], a[1]}), plain({batch, b[0], b[1]}), ta, tb));
    }
    out.push_back(
        product(stored({2, 3, a[0], a[1]}, kHeads), stored({2, 3, b[0], b[1]}, kHeads), ta, tb));
  }
  return out;
}

// Few rows with weights that are whole words along k, as decoding has them; more rows than that.
std::vector<OpCase> products_of_few_rows() {
  std::vector<OpCase> out;
  for (const std::int64_t rows : {1, 2, 3, 4, 5}) {
    out.push_back(product(plain({rows, 64}), plain({1, 64}), false, true));
    out.push_back(product(plain({rows, 2056}), plain({37, 2056}), false, true));
    out.push_back(product(stored({rows, 264}, kSliced), plain({1031, 264}), false, true));
  }
  return out;
}

OpCase by_parts(OpCase one) {
  one.attrs.set("by_parts", true);
  return one;
}

// Tiles and blocks of K that are whole and not, both orders of each operand, few tiles, batches.
std::vector<OpCase> products_by_parts() {
  std::vector<OpCase> out;
  for (int bits = 0; bits < 4; ++bits) {
    const bool ta = (bits & 1) != 0, tb = (bits & 2) != 0;
    const auto sized = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
      return product(plain(ta ? Shape{k, m} : Shape{m, k}), plain(tb ? Shape{n, k} : Shape{k, n}),
                     ta, tb);
    };
    out.push_back(sized(128, 96, 64));
    out.push_back(sized(129, 161, 131));
    out.push_back(sized(3, 5, 1031));
    out.push_back(sized(1, 1, 1));
    out.push_back(product(plain(ta ? Shape{3, 70, 40} : Shape{3, 40, 70}),
                          plain(tb ? Shape{3, 50, 70} : Shape{3, 70, 50}), ta, tb));
    out.push_back(product(stored(ta ? Shape{2, 3, 67, 41} : Shape{2, 3, 41, 67}, kHeads),
                          stored(tb ? Shape{2, 3, 37, 67} : Shape{2, 3, 67, 37}, kHeads), ta, tb));
  }
  out.push_back(product(stored({33, 21}, kSliced), stored({21, 15}, kTransposed)));
  for (OpCase& one : out) one = by_parts(std::move(one));
  return out;
}

// Whole tiles and not, rows that lie apart, nothing to sum.
OpTest linear_grad() {
  const auto of = [](Operand g, Operand w, Operand x) {
    return OpCase{{std::move(g), std::move(w), std::move(x)}};
  };
  const auto sized = [&](std::int64_t rows, std::int64_t n, std::int64_t k) {
    return of(plain({rows, n}), plain({n, k}), plain({rows, k}));
  };
  return {
      .op = "linear_grad",
      .bound = Bound::kTerms,
      .cases = {sized(128, 192, 96), sized(131, 67, 161), sized(1, 1, 1), sized(3, 700, 5),
                sized(700, 3, 70), sized(0, 4, 3), sized(4, 0, 3),
                of(stored({67, 41}, kSliced), stored({41, 70}, kTransposed),
                   stored({67, 70}, kSliced)),
                of(stored({66, 130}, kTransposed), stored({130, 36}, kSliced), plain({66, 36}))},
      .dtypes = {DType::kF32},
      .gradient_outputs = {}};
}

OpTest matmul() {
  OpTest out{
      .op = "matmul",
      .bound = Bound::kTerms,
      .cases = {product(plain({5, 7}), plain({7, 3})),
                product(plain({7, 5}), plain({7, 3}), true),
                product(plain({5, 7}), plain({3, 7}), false, true),
                product(plain({7, 5}), plain({3, 7}), true, true),
                product(plain({1, 1}), plain({1, 1})),
                product(plain({1, 257}), plain({257, 1})),
                product(plain({0, 4}), plain({4, 3})),
                product(plain({3, 0}), plain({0, 5})),
                product(plain({67, 131}), plain({131, 97})),
                product(plain({131, 67}), plain({97, 131}), true, true),
                product(plain({17, 1031}), plain({19, 1031}), false, true),
                product(plain({3, 5003}), plain({5003, 7})),
                product(plain({271, 12}), plain({12, 401})),
                product(plain({2, 3, 5, 7}), plain({2, 3, 7, 4})),
                product(plain({2, 3, 5, 7}), plain({2, 3, 4, 7}), false, true),
                product(stored({2, 3, 5, 8}, kHeads), stored({2, 3, 9, 8}, kHeads), false, true),
                product(stored({1, 3, 5, 8}, kHeads), stored({1, 3, 8, 9}, kHeads)),
                product(stored({33, 21}, kTransposed), stored({21, 15}, kTransposed)),
                product(stored({33, 21}, kSliced), stored({21, 15}, kSliced)),
                product(stored({3, 5, 7}, kBroadcast), plain({3, 7, 4})),
                product(plain({3, 5, 7}), stored({3, 4, 7}, kBroadcast), false, true)}};
  for (OpCase& one : products_of_ones()) out.cases.push_back(std::move(one));
  for (OpCase& one : products_of_few_rows()) out.cases.push_back(std::move(one));
  for (OpCase& one : products_by_parts()) out.cases.push_back(std::move(one));
  return out;
}

// Tiles of 128 that are whole and not, vectors that are and are not, one row, nothing.
OpTest quantize() {
  OpTest out{.op = "quantize", .bound = Bound::kBeside, .gradient_outputs = {}};
  for (const auto& [codes, largest] :
       {std::pair{DType::kF8E4M3, 448.0}, std::pair{DType::kF8E5M2, 57344.0}}) {
    for (const Operand& x :
         {plain({128, 128}), plain({1, 1}), plain({130, 257}, -1e-3, 2e-3), plain({0, 5}),
          plain({264, 136}, -9e4, 3e4), plain({7, 4099}), plain({33, 8}, 0.0, 0.0),
          stored({65, 72}, kSliced), stored({40, 130}, kTransposed)}) {
      out.cases.push_back({{x}, {{"dtype", codes}, {"largest", AttrValue(largest)}}});
    }
  }
  return out;
}

// No step before, a scale that fits with and without room to spare, magnitudes that outgrew it and
// that fell far below it.
OpTest quantize_delayed() {
  OpTest out{.op = "quantize_delayed", .bound = Bound::kBeside, .gradient_outputs = {}};
  for (const auto& [codes, largest] :
       {std::pair{DType::kF8E4M3, 448.0}, std::pair{DType::kF8E5M2, 57344.0}}) {
    for (const Operand& x : {plain({256, 384}), plain({130, 257}), plain({0, 5}), plain({64, 64}),
                             stored({65, 72}, kSliced)}) {
      for (const double last : {0.0, 1.5, 2.5, 20.0, 0.5, 0.0625}) {
        out.cases.push_back(
            {{x, wide({1}, last, last)},
             {{"dtype", codes}, {"largest", AttrValue(largest)}, {"room", AttrValue(2.0)}}});
      }
    }
  }
  return out;
}

// Quantizes a result that is computed first, and rounded where the dtype is of 16 bits: so is its
// largest magnitude, by up to half a spacing of bfloat16.
OpTest swiglu_quantized(bool is_gradient) {
  OpTest out{.op = is_gradient ? "swiglu_grad_quantized" : "swiglu_quantized",
             .bound = Bound::kUnfused,
             .gradient_outputs = {},
             .floor_share = 0x1p-8};
  for (const auto& [codes, largest] :
       {std::pair{DType::kF8E4M3, 448.0}, std::pair{DType::kF8E5M2, 57344.0}}) {
    for (const auto& [shape, how] :
         {std::pair{Shape{256, 384}, Stored::kPlain}, std::pair{Shape{130, 257}, Stored::kPlain},
          std::pair{Shape{0, 5}, Stored::kPlain}, std::pair{Shape{65, 72}, kSliced}}) {
      for (const double last : {0.0, 3.0, 0.25, 200.0}) {
        std::vector<Operand> operands{stored(shape, how), stored(shape, how)};
        if (is_gradient) operands.insert(operands.begin(), plain(shape));
        operands.push_back(wide({1}, last, last));
        out.cases.push_back(
            {operands,
             {{"dtype", codes}, {"largest", AttrValue(largest)}, {"room", AttrValue(2.0)}}});
      }
    }
  }
  return out;
}

// Packs of eight and what is left behind them, zeros, a part of a tensor; more than one table.
OpTest largest_magnitudes() {
  OpTest out{.op = "largest_magnitudes", .bound = Bound::kExact, .gradient_outputs = {}};
  out.cases = {{{plain({4099})}},
               {{plain({64, 48}), plain({8}, -1e-3, 2e-3), plain({7}, 0.0, 0.0), plain({1000})}},
               {{stored({65, 72}, kSliced), plain({1})}},
               {std::vector<Operand>(510, plain({16}))}};
  return out;
}

// The largest magnitude is that of another part. Steps before: none, one whose scale fits, outgrown
// and far too large ones.
OpTest quantize_parts() {
  OpTest out{.op = "quantize_parts", .bound = Bound::kBeside, .gradient_outputs = {}};
  const std::pair<Shape, double> parts[] = {
      {{5003}, 1.5}, {{64, 48}, 0.0}, {{16}, 20.0}, {{1000}, 0.25}};
  for (const auto& [codes, largest] :
       {std::pair{DType::kF8E4M3, 448.0}, std::pair{DType::kF8E5M2, 57344.0}}) {
    for (const std::size_t count : {std::size_t{1}, std::size(parts), std::size_t{510}}) {
      if (count > std::size(parts) && codes == DType::kF8E5M2) continue;
      OpCase one{{wide({static_cast<std::int64_t>(count)}, 2.25, 2.25)},
                 {{"dtype", codes}, {"largest", AttrValue(largest)}, {"room", AttrValue(2.0)}}};
      for (std::size_t i = 0; i < count; ++i) {
        const auto& [shape, last] = parts[count > std::size(parts) ? 2 : i];
        one.operands.insert(one.operands.end(), {plain(shape), wide({1}, last, last)});
      }
      out.cases.push_back(std::move(one));
    }
  }
  return out;
}

OpTest transpose_codes() {
  OpTest out{.op = "transpose_codes",
             .bound = Bound::kExact,
             .dtypes = {DType::kBF16},
             .gradient_outputs = {}};
  for (const Shape& shape : {Shape{128, 128}, Shape{16, 16}, Shape{272, 144}, Shape{48, 400}}) {
    out.cases.push_back({{{.shape = shape, .low = -240.0, .high = 300.0, .holds = Holds::kCodes}}});
  }
  return out;
}

// Tensor cores drop bits of a sum of 8-bit products: the bound is a rounding of bfloat16, for the
// largest result, and a quarter of one.
OpTest scaled_matmul() {
  OpTest out{.op = "scaled_matmul",
             .bound = Bound::kUnfused,
             .dtypes = {DType::kBF16},
             .gradient_outputs = {},
             .floor_share = 0x1p-10};
  const auto codes = [](Shape shape, Holds holds) {
    return Operand{.shape = shape, .low = -240.0, .high = 300.0, .holds = holds};
  };
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{16, 16, 16},
                                {32, 48, 1040},
                                {144, 272, 64},
                                {0, 16, 16},
                                {16, 32, 0}}) {
    for (const auto& [a, b] :
         {std::pair{Holds::kCodes, Holds::kCodes}, std::pair{Holds::kGradients, Holds::kCodes},
          std::pair{Holds::kCodes, Holds::kGradients}}) {
      out.cases.push_back(
          {{codes({m, k}, a), codes({n, k}, b), wide({}, 0.01, 0.02), wide({}, 3.0, 4.0)}});
    }
  }
  return out;
}

// As scaled_matmul(), added to one tensor and to several, in the dtype under test and in float32.
OpTest scaled_matmul_add() {
  OpTest out{.op = "scaled_matmul_add",
             .bound = Bound::kUnfused,
             .dtypes = {DType::kBF16},
             .gradient_outputs = {},
             .floor_share = 0x1p-10};
  const auto codes = [](Shape shape, Holds holds) {
    return Operand{.shape = shape, .low = -240.0, .high = 300.0, .holds = holds};
  };
  for (const auto& c : {plain, wide}) {
    for (const std::vector<std::int64_t>& rows :
         {std::vector<std::int64_t>{32}, {16, 48, 16}, {144, 0, 128}, {0}}) {
      for (const auto& [n, k] :
           {std::pair<std::int64_t, std::int64_t>{16, 16}, {48, 1040}, {272, 0}}) {
        std::int64_t m = 0;
        for (const std::int64_t count : rows) m += count;
        OpCase one{{codes({m, k}, Holds::kGradients), codes({n, k}, Holds::kCodes),
                    wide({}, 0.01, 0.02), wide({}, 3.0, 4.0)}};
        for (const std::int64_t count : rows) one.operands.push_back(c({count, n}, -2.0, 2.0));
        out.cases.push_back(std::move(one));
      }
    }
  }
  return out;
}

OpCase added_product(Operand a, Operand b, Operand c, bool transpose_a = false,
                     bool transpose_b = false) {
  OpCase out = product(std::move(a), std::move(b), transpose_a, transpose_b);
  out.operands.push_back(std::move(c));
  return out;
}

// The same case as y = beta·c + a·b; without terms to sum, y is beta·c.
OpCase times(double beta, OpCase one) {
  one.attrs.set("beta", AttrValue(beta));
  return one;
}

// Products in blocks, in parts of k, of one row or column, of nothing; sums in the dtype of the
// operands and in float32.
OpTest matmul_add() {
  OpTest out{.op = "matmul_add", .bound = Bound::kTerms, .gradient_outputs = {}};
  for (const auto& c : {plain, wide}) {
    const auto sum = [&](Shape shape) { return c(std::move(shape), -2.0, 2.0); };
    for (OpCase one :
         {added_product(plain({5, 7}), plain({7, 3}), sum({5, 3})),
          added_product(plain({7, 5}), plain({3, 7}), sum({5, 3}), true, true),
          added_product(plain({1, 257}), plain({257, 1}), sum({1, 1})),
          added_product(plain({1, 300}), plain({300, 70}), sum({1, 70})),
          added_product(plain({1, 512}), plain({70, 512}), sum({1, 70}), false, true),
          added_product(plain({4, 520}), plain({33, 520}), sum({4, 33}), false, true),
          added_product(plain({300, 70}), plain({1, 70}), sum({300, 1}), false, true),
          added_product(plain({0, 4}), plain({4, 3}), sum({0, 3})),
          added_product(plain({3, 0}), plain({0, 5}), sum({3, 5})),
          added_product(plain({131, 67}), plain({97, 131}), sum({67, 97}), true, true),
          added_product(plain({3, 5003}), plain({5003, 7}), sum({3, 7})),
          added_product(plain({271, 12}), plain({12, 401}), sum({271, 401})),
          added_product(plain({67, 700}), plain({700, 1100}), sum({67, 1100})),
          times(3.5, added_product(plain({5, 7}), plain({7, 3}), sum({5, 3}))),
          times(0.25, added_product(plain({3, 0}), plain({0, 5}), sum({3, 5}))),
          times(0.25,
                added_product(plain({2, 70, 67}), plain({2, 70, 90}), sum({2, 67, 90}), true)),
          by_parts(added_product(plain({67, 700}), plain({700, 300}), sum({67, 300}))),
          by_parts(added_product(plain({70, 67}), plain({65, 70}), sum({67, 65}), true, true)),
          added_product(plain({2, 3, 5, 7}), plain({2, 3, 4, 7}), sum({2, 3, 5, 4}), false, true),
          added_product(stored({33, 21}, kTransposed), stored({21, 15}, kSliced), sum({33, 15}))}) {
      out.cases.push_back(std::move(one));
    }
  }
  return out;
}

// Rows of a product for one tensor and for several, of which some may be empty.
OpTest matmul_add_rows() {
  OpTest out{.op = "matmul_add_rows", .bound = Bound::kTerms, .gradient_outputs = {}};
  const auto added = [](Operand a, Operand b, std::vector<Operand> sums, bool transpose_a = false,
                        bool transpose_b = false) {
    OpCase one = product(std::move(a), std::move(b), transpose_a, transpose_b);
    one.operands.insert(one.operands.end(), sums.begin(), sums.end());
    return one;
  };
  for (const auto& c : {plain, wide}) {
    const auto sum = [&](std::int64_t rows, std::int64_t n) { return c({rows, n}, -2.0, 2.0); };
    for (OpCase one :
         {added(plain({5, 7}), plain({7, 3}), {sum(5, 3)}),
          added(plain({7, 5}), plain({7, 3}), {sum(2, 3), sum(3, 3)}, true),
          added(plain({131, 64}), plain({131, 97}), {sum(16, 97), sum(0, 97), sum(48, 97)}, true),
          added(plain({300, 96}), plain({72, 300}), {sum(64, 72), sum(16, 72), sum(16, 72)}, true,
                true),
          added(plain({66, 700}), plain({700, 300}), {sum(1, 300), sum(65, 300)}),
          added(plain({4, 0}), plain({0, 3}), {sum(1, 3), sum(3, 3)}),
          added(plain({0, 4}), plain({4, 3}), {sum(0, 3)}),
          added(stored({33, 20}, kSliced), stored({33, 15}, kSliced), {sum(8, 15), sum(12, 15)},
                true)}) {
      out.cases.push_back(std::move(one));
    }
  }
  return out;
}

// Products in blocks, in parts of k, of few rows, of one row or column, of nothing; rows that are
// no whole words; operands and biases that lie in something larger.
OpTest matmul_bias() {
  OpTest out{.op = "matmul_bias", .bound = Bound::kTerms};
  const auto row = [](std::int64_t columns) { return plain({columns}, -2.0, 2.0); };
  for (OpCase one :
       {added_product(plain({5, 7}), plain({7, 3}), row(3)),
        added_product(plain({7, 5}), plain({3, 7}), row(3), true, true),
        added_product(plain({1, 257}), plain({257, 1}), row(1)),
        added_product(plain({1, 300}), plain({300, 70}), row(70)),
        added_product(plain({1, 512}), plain({70, 512}), row(70), false, true),
        added_product(plain({4, 520}), plain({33, 520}), row(33), false, true),
        added_product(plain({300, 70}), plain({1, 70}), row(1), false, true),
        added_product(plain({0, 4}), plain({4, 3}), row(3)),
        added_product(plain({3, 0}), plain({0, 5}), row(5)),
        added_product(plain({131, 67}), plain({97, 131}), row(97), true, true),
        added_product(plain({3, 5003}), plain({5003, 7}), row(7)),
        added_product(plain({271, 12}), plain({12, 401}), row(401)),
        added_product(plain({256, 64}), plain({192, 64}), row(192), false, true),
        added_product(plain({67, 700}), plain({700, 1100}), row(1100)),
        added_product(stored({33, 21}, kTransposed), stored({21, 15}, kSliced), row(15)),
        added_product(stored({33, 24}, kSliced), stored({16, 24}, kSliced), row(16), false,
                      true)}) {
    out.cases.push_back(std::move(one));
  }
  return out;
}

// Rows, width and columns: tiles of our kernels, of one step of K and of many, the last three for
// GPUs alone; and sizes that are left to the library, odd ones among them. Each op adds one with
// more tiles than a GPU has blocks.
constexpr std::int64_t kGatedSizes[][3] = {{1, 1, 1},       {5, 7, 3},       {128, 64, 128},
                                           {256, 72, 136},  {130, 65, 67},   {256, 64, 128},
                                           {512, 320, 256}, {256, 704, 384}, {2560, 64, 128}};

template <class F>
OpTest gated_test(const char* op, std::int64_t most_columns, const F& operands) {
  OpTest out{.op = op, .bound = Bound::kUnfused, .gradient_outputs = {}};
  for (const auto& [rows, width, columns] : kGatedSizes) {
    out.cases.push_back({.operands = operands(rows, width, columns),
                         .is_for_gpus = rows * width * columns > 256 * 72 * 136});
  }
  out.cases.push_back({.operands = operands(256, 64, most_columns), .is_for_gpus = true});
  return out;
}

OpTest matmul_swiglu() {
  OpTest out = gated_test("matmul_swiglu", 4480, [](auto rows, auto width, auto columns) {
    return std::vector{plain({rows, width}), plain({2 * columns, width}, -0.25, 0.25)};
  });
  out.cases.push_back({{stored({256, 64}, kTransposed), stored({256, 64}, kSliced)}});
  return out;
}

OpTest matmul_swiglu_grad() {
  OpTest out = gated_test("matmul_swiglu_grad", 8576, [](auto rows, auto width, auto columns) {
    return std::vector{plain({rows, width}), plain({width, columns}, -0.25, 0.25),
                       plain({rows, 2 * columns})};
  });
  out.cases.push_back(
      {{stored({256, 64}, kSliced), stored({64, 128}, kTransposed), stored({256, 256}, kSliced)}});
  return out;
}

// A row of k and `units` results, with all that `attrs` asks for around them.
OpCase product_of_row(Shape x, std::int64_t units, const Attrs& attrs = {}) {
  const std::int64_t k = x.back();
  const auto has = [&](const char* flag) { return attrs.find(flag) != nullptr; };
  const std::int64_t rows = has("gated") ? 2 * units : units;
  OpCase out{{plain(x), plain({rows, k}, -0.25, 0.25)}, attrs};
  if (has("norm")) out.operands.push_back(plain({k}));
  if (has("shifted")) out.operands.push_back(plain({k}));
  if (has("biased")) out.operands.push_back(plain({rows}));
  x[x.rank() - 1] = units;
  if (has("added")) out.operands.push_back(plain(x));
  return out;
}

// Rows for one warp and for several, shares that are not whole, one unit, more than a block's; each
// norm, activation and sum; weights that are read at once, as nothing writes them.
OpTest gemv() {
  const AttrValue yes = true, rms = std::string("rms"), layer = std::string("layer");
  const auto act = [](const char* name) { return AttrValue(std::string(name)); };
  OpTest out{
      .op = "gemv",
      .bound = Bound::kUnfused,
      .cases = {product_of_row({8}, 1), product_of_row({1, 64}, 37),
                product_of_row({1, 1, 2056}, 70), product_of_row({2048}, 5),
                product_of_row({1, 6144}, 33, {{"added", yes}}),
                product_of_row({256}, 5000, {{"early", yes}}),
                product_of_row({1, 16}, 9, {{"gated", yes}}),
                product_of_row({1, 64}, 300, {{"biased", yes}, {"added", yes}}),
                product_of_row({1, 520}, 40, {{"norm", rms}, {"eps", 1e-3}}),
                product_of_row({1, 256}, 40, {{"norm", rms}, {"offset", 1.0}}),
                product_of_row({1, 256}, 40, {{"norm", layer}}),
                product_of_row({2304}, 24, {{"norm", layer}, {"shifted", yes}}),
                product_of_row({1, 64}, 77, {{"biased", yes}, {"activation", act("gelu")}}),
                product_of_row({1, 64}, 20, {{"activation", act("gelu_erf")}}),
                product_of_row({1, 64}, 20, {{"activation", act("relu")}}),
                product_of_row(
                    {1, 1, 512}, 130,
                    {{"norm", rms}, {"activation", act("silu")}, {"gated", yes}, {"early", yes}}),
                product_of_row({1, 72}, 19,
                               {{"norm", layer},
                                {"shifted", yes},
                                {"biased", yes},
                                {"activation", act("gelu")},
                                {"gated", yes},
                                {"added", yes}})},
      .gradient_outputs = {}};
  return out;
}

OpCase scattered(Operand x, Operand at, std::int64_t rows) {
  return {{x, at}, {{"rows", rows}}};
}
OpCase put(Operand x, Operand at, std::int64_t size) {
  return {{x, at}, {{"size", size}}};
}

// --- results that depend on places --------------------------------------------------------------
std::vector<OpCase> cumsum_cases() {
  std::vector<OpCase> out;
  for (const Shape& shape : {Shape{5, 7}, Shape{1031}, Shape{3, 4, 17}, Shape{9, 1}, Shape{0, 7},
                             Shape{3, 0}, Shape{67, 256}, Shape{2, 1300}}) {
    out.push_back({{plain(shape)}, {{"reverse", out.size() % 2 == 1}}});
  }
  out.push_back({{stored({13, 5}, kTransposed)}});
  return out;
}

OpCase dropout_on(Operand x, double rate, std::int64_t batch, std::int64_t stream = 3) {
  Operand number = indices({1}, 1);
  number.low = number.high = static_cast<double>(batch);
  return {{std::move(x), number}, {{"rate", rate}, {"stream", stream}}};
}

OpCase pow_on(Shape shape, double least, double most, double from, double to, bool is_whole) {
  Operand exponent = plain(shape, from, to);
  exponent.differentiable = !is_whole;
  return {{plain(shape, least, most), exponent}};
}

std::vector<OpTest> sequence_tests() {
  return {
      {.op = "cumsum",
       .bound = Bound::kUnfused,
       .cases = cumsum_cases(),
       .dtypes = {DType::kF32, DType::kBF16, DType::kF16, DType::kI64, DType::kI32}},
      {.op = "dropout",
       .cases = {dropout_on(plain({5, 7}), 0.5, 0), dropout_on(plain({1031}), 0.1, 7),
                 dropout_on(plain({67, 256}), 0.9, std::int64_t{1} << 40),
                 dropout_on(plain({0}), 0.5, 1), dropout_on(plain({33}), 0.0, 2),
                 dropout_on(plain({33}), 1.0, 2),
                 dropout_on(stored({13, 5}, kTransposed), 0.3, 4)}},
      composite(
          "pow",
          {pow_on({5, 7}, 0.2, 2.5, -2.0, 2.0, false), pow_on({1031}, 0.5, 4.0, 0.1, 1.5, false),
           pow_on({13}, -2.0, -0.5, 3.0, 3.0, true), pow_on({13}, -2.0, -0.5, 2.0, 2.0, true),
           pow_on({0}, 0.5, 1.0, 1.0, 1.0, true)},
          {0}),
  };
}

std::vector<OpTest> gather_tests() {
  return {
      {.op = "gather",
       .bound = Bound::kExact,
       .cases = {{{plain({11, 5}), indices({7}, 11)}},
                 {{plain({300, 33}), indices({2, 65}, 300)}},
                 {{stored({11, 5}, kTransposed), indices({2, 3}, 11)}},
                 {{plain({4, 3}), indices({0}, 4)}},
                 {{plain({1, 1}), indices({}, 1)}}},
       .dtypes = kNumberTypes},
      {.op = "scatter_add",
       .bound = Bound::kTerms,
       .cases = {scattered(plain({7, 5}), indices({7}, 4), 4),
                 scattered(plain({2, 65, 33}), indices({2, 65}, 50), 53),
                 scattered(plain({400, 3}), indices({400}, 2), 2),
                 scattered(plain({0, 3}), indices({0}, 4), 4),
                 scattered(stored({9, 5}, kTransposed), indices({9}, 9), 9),
                 scattered(plain({5}), indices({}, 3), 3)}},
      {.op = "scatter_add_to",
       .bound = Bound::kTerms,
       .cases = {{{plain({7, 5}), indices({7}, 4), plain({4, 5})}},
                 {{plain({2, 65, 36}), indices({2, 65}, 50), plain({53, 36})}},
                 {{plain({400, 3}), indices({400}, 2), plain({2, 3})}},
                 {{plain({0, 3}), indices({0}, 4), plain({4, 3})}},
                 {{stored({9, 5}, kTransposed), indices({9}, 9), stored({9, 5}, kTransposed)}}},
       .gradient_outputs = {}},
      {.op = "take_along",
       .bound = Bound::kExact,
       .cases = {{{plain({7, 5}), indices({7}, 5)}},
                 {{plain({2, 3, 131}), indices({2, 3}, 131)}},
                 {{plain({9}), indices({}, 9)}},
                 {{plain({0, 4}), indices({0}, 4)}},
                 {{stored({13, 6}, kTransposed), indices({13}, 6)}}},
       .dtypes = kNumberTypes},
      {.op = "greedy_token",  // of equal entries the first
       .bound = Bound::kExact,
       .cases = {{{plain({1})}},
                 {{plain({5, 7})}},
                 {{plain({3, 9}, 1.0, 1.0)}},
                 {{plain({1, 1, 50257})}},
                 {{plain({2, 4096})}},
                 {{plain({0, 4})}},
                 {{stored({13, 6}, kTransposed)}}},
       .gradient_outputs = {}},
      {.op = "put_along",
       .bound = Bound::kExact,
       .cases = {put(plain({7}), indices({7}, 5), 5), put(plain({2, 3}), indices({2, 3}, 131), 131),
                 put(plain({}), indices({}, 9), 9), put(plain({0}), indices({0}, 4), 4)},
       .dtypes = kNumberTypes},
  };
}

}  // namespace

std::vector<OpTest> product_tests() {
  std::vector<OpTest> out{
      {.op = "sum", .bound = Bound::kTerms, .cases = sum_cases()},
      {.op = "max", .bound = Bound::kExact, .cases = reduction_cases()},
      {.op = "global_norm",
       .bound = Bound::kUnfused,
       .cases = {{{plain({1031})}},
                 {{plain({5, 7}), plain({3}), plain({2, 3, 17})}},
                 {{plain({})}},
                 {{plain({0, 3}), plain({1, 1})}},
                 {{plain({300, 257}), stored({9, 5}, kTransposed)}},
                 {{plain({65536}), plain({0}), plain({70001}), plain({2, 3})}}},
       .gradient_outputs = {}},
      matmul(),
      matmul_add(),
      matmul_add_rows(),
      matmul_bias(),
      matmul_swiglu(),
      matmul_swiglu_grad(),
      linear_grad(),
      gemv(),
      quantize(),
      quantize_delayed(),
      largest_magnitudes(),
      quantize_parts(),
      transpose_codes(),
      swiglu_quantized(false),
      swiglu_quantized(true),
      scaled_matmul(),
      scaled_matmul_add(),
  };
  for (OpTest& test : gather_tests()) out.push_back(std::move(test));
  for (OpTest& test : sequence_tests()) out.push_back(std::move(test));
  return out;
}

}  // namespace tracestep::testing
