// Tiled attention: shapes that end inside a tile of every kernel, and scores that strain them.
#include "backends/op_matrix.h"
#include "support/host_values.h"

namespace tracestep::testing {
namespace {

struct Wish {
  Shape q;
  std::int64_t keys = 0;
  bool causal = true;
  Stored how = Stored::kPlain;
  double reach = 1.0;
  double scale = 0.3;
  bool token_major = false;
  std::int64_t group = 1;   // heads of q that share one of k and v
  std::int64_t window = 0;  // keys that a query sees; 0: all
  double cap = 0.0;         // of scores; 0: none
  bool is_for_gpus = false;
  // Lengths of the documents in a row; of other rows in turned order. None: a row is one text.
  std::vector<std::int64_t> documents = {};
};

Attrs attrs_of(const Wish& w) {
  return {{"scale", w.scale},
          {"causal", w.causal},
          {"token_major", w.token_major},
          {"window", w.window},
          {"cap", w.cap}};
}

Shape keys_of(const Wish& w) {
  Shape shape = w.q;
  shape[shape.rank() - 2] = w.keys;
  if (w.group > 1) shape[shape.rank() - 3] /= w.group;
  return shape;
}

Shape as_result(const Wish& w) {
  Shape out = w.q;
  if (w.token_major) std::swap(out[out.rank() - 3], out[out.rank() - 2]);
  return out;
}

// [..., H, T, D] → [..., T]
Shape places_of(const Wish& w) {
  Shape out(std::span(w.q.begin(), static_cast<std::size_t>(std::max(w.q.rank() - 3, 0))));
  out.push_back(w.q.back(1));
  return out;
}

// Operands for the bounds of documents, and their values as x`at` and the next.
void add_bounds(const Wish& w, OpCase& to) {
  if (w.documents.empty()) return;
  for (int i = 0; i < 2; ++i) {
    to.operands.push_back({.shape = places_of(w), .holds = Holds::kIndex, .differentiable = false});
  }
}
void settle_bounds(const Wish& w, std::size_t at, Tensors& leaves) {
  if (w.documents.empty()) return;
  HostTensor &starts = leaves.at(fmt::format("x{}", at)),
             &ends = leaves.at(fmt::format("x{}", at + 1));
  const std::int64_t places = w.q.back(1), rows = places_of(w).product() / places;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::vector<std::int64_t> lengths = w.documents;
    std::ranges::rotate(lengths, lengths.begin() + row % std::ssize(lengths));
    std::int64_t begin = 0;
    for (const std::int64_t length : lengths) {
      for (std::int64_t i = begin; i < begin + length; ++i) {
        starts.as<std::int64_t>()[static_cast<std::size_t>(row * places + i)] = begin;
        ends.as<std::int64_t>()[static_cast<std::size_t>(row * places + i)] = begin + length;
      }
      begin += length;
    }
  }
}

OpCase forward_on(const Wish& w) {
  const Shape kv = keys_of(w);
  const auto operand = [&](const Shape& s) { return stored(s, w.how, -w.reach, w.reach); };
  OpCase out{.operands = {operand(w.q), operand(kv), stored(kv, w.how)},
             .attrs = attrs_of(w),
             .is_for_gpus = w.is_for_gpus};
  add_bounds(w, out);
  if (!w.documents.empty()) out.settle = [w](Tensors& leaves) { settle_bounds(w, 3, leaves); };
  return out;
}

// y and the log-sum-exp are those of forward: kernels may count on weights that add up to one.
void settle_results(const OpCase& c, Tensors& leaves) {
  const OpTest forward{.op = "flash_attention"};
  OpCase on{{c.operands[1], c.operands[2], c.operands[3]}, c.attrs};
  Tensors operands{{"x0", leaves.at("x1")}, {"x1", leaves.at("x2")}, {"x2", leaves.at("x3")}};
  for (std::size_t i = 6; i < c.operands.size(); ++i) {  // bounds of documents
    on.operands.push_back(c.operands[i]);
    operands[fmt::format("x{}", i - 3)] = leaves.at(fmt::format("x{}", i));
  }
  const DType dtype = leaves.at("x1").dtype;
  const Program run = build_program(forward, on, {.dtype = dtype});
  const Tensors results = reference_values(run, operands);
  leaves.at("x4") = converted(results.at("y0"), leaves.at("x4").dtype);
  leaves.at("x5") = converted(results.at("y1"), leaves.at("x5").dtype);
}

OpCase backward_on(const Wish& w) {
  const Shape kv = keys_of(w), rows = Shape(std::span(w.q.begin(), w.q.end() - 1));
  const auto operand = [&](const Shape& s) { return stored(s, w.how, -w.reach, w.reach); };
  OpCase out{{stored(as_result(w), w.how), operand(w.q), operand(kv), stored(kv, w.how),
              plain(as_result(w)), wide(rows)},
             attrs_of(w)};
  add_bounds(w, out);
  out.settle = [c = out, w](Tensors& leaves) {
    settle_bounds(w, 6, leaves);
    settle_results(c, leaves);
  };
  out.is_for_gpus = w.is_for_gpus;
  return out;
}

std::vector<Wish> wishes() {
  return {
      {{2, 3, 5, 4}, 5},
      {{2, 3, 5, 4}, 7, false},
      {{1, 1}, 1},
      {{1, 16}, 1, false},
      {{7, 1}, 7},
      {{0, 4, 2}, 4, false},
      {{3, 0, 8}, 5},
      {{2, 4, 8}, 0, false},
      // These have one query of a long row, and one key for all queries.
      {{3, 1, 64}, 131},
      {{2, 67, 16}, 1, false},
      {{2, 13, 59}, 101},
      {{2, 101, 80}, 13, false},
      {{53, 111}, 53},
      {{131, 128}, 131},
      {{64, 256}, 64},
      // More than one tile of queries and of keys, in either direction.
      {{257, 8}, 331},
      {{401, 3}, 401},
      {{233, 16}, 97, false},
      // As a model stores heads, and parts of something larger.
      {{2, 3, 33, 16}, 33, true, Stored::kHeads},
      {{2, 3, 77, 64}, 77, true, Stored::kHeads, 1.0, 0.125, true},
      {{2, 3, 19, 34}, 29, true, Stored::kSliced, 1.0, 0.2, true},
      {{3, 21, 24}, 21, true, Stored::kBroadcast},
      {{3, 21, 24}, 21, false, Stored::kTransposed},
      // Heads that share keys.
      {.q = {2, 4, 37, 16}, .keys = 37, .group = 2},
      {.q = {6, 149, 64}, .keys = 149, .group = 3},
      {.q = {2, 259, 16}, .keys = 131, .causal = false, .group = 2},
      {.q = {2, 8, 77, 64}, .keys = 77, .how = Stored::kHeads, .token_major = true, .group = 4},
      {.q = {2, 6, 19, 34}, .keys = 29, .how = Stored::kSliced, .token_major = true, .group = 3},
      // Windows within a tile and over several; keys that nobody sees.
      {.q = {2, 4, 37, 16}, .keys = 37, .group = 2, .window = 5},
      {.q = {3, 149, 64}, .keys = 149, .window = 40},
      {.q = {131, 128}, .keys = 131, .window = 2},
      {.q = {2, 401, 32}, .keys = 401, .window = 129},
      {.q = {2, 8, 77, 64},
       .keys = 77,
       .how = Stored::kHeads,
       .token_major = true,
       .group = 4,
       .window = 20},
      // Caps that scores hardly feel, and that hold most of them back.
      {.q = {2, 37, 16}, .keys = 37, .cap = 50.0},
      {.q = {3, 149, 64}, .keys = 149, .scale = 1.0, .cap = 2.0},
      {.q = {4, 67, 80}, .keys = 131, .causal = false, .scale = 2.0, .group = 2, .cap = 3.0},
      {.q = {2, 8, 77, 64},
       .keys = 77,
       .how = Stored::kHeads,
       .token_major = true,
       .group = 4,
       .window = 20,
       .cap = 1.5},
      // Documents of one place and of many, within a tile and over several; with a window as well.
      {.q = {2, 4, 37, 16}, .keys = 37, .group = 2, .documents = {1, 20, 16}},
      {.q = {3, 149, 64}, .keys = 149, .documents = {64, 80, 5}},
      {.q = {131, 128}, .keys = 131, .documents = {131}},
      {.q = {2, 2, 401, 32}, .keys = 401, .documents = {3, 250, 1, 1, 130, 16}},
      {.q = {2, 8, 77, 64},
       .keys = 77,
       .how = Stored::kHeads,
       .token_major = true,
       .group = 4,
       .window = 20,
       .cap = 1.5,
       .documents = {50, 27}}};
}

// A GPU has kernels of their own for these; a CPU takes them as it takes those above.
std::vector<Wish> wishes_for_gpus() {
  return {
      // Heads that share keys: 2, 4 and 8 of them.
      {.q = {1, 8, 131, 80}, .keys = 259, .group = 4},
      {.q = {8, 65, 128}, .keys = 65, .group = 8},
      {.q = {2, 8, 259, 32}, .keys = 131, .causal = false, .group = 2},
      {.q = {4, 53, 200}, .keys = 53, .causal = false, .group = 4},
      // Few heads with many queries, which blocks divide; widths between those that kernels have.
      {.q = {4, 261, 128}, .keys = 261, .group = 4},
      {.q = {2, 2, 261, 104}, .keys = 261, .causal = false, .group = 2},
      {.q = {4, 261, 72}, .keys = 330, .group = 4, .window = 150},
      {.q = {2, 133, 192}, .keys = 200},
      {.q = {2, 4, 90, 136}, .keys = 190, .causal = false, .group = 2},
      {.q = {2, 2, 133, 256}, .keys = 133, .token_major = true, .group = 2, .window = 70},
      // Few queries of many keys, which blocks divide.
      {.q = {2, 67, 64}, .keys = 1100, .causal = false},
      {.q = {2, 2, 133, 128}, .keys = 2100, .group = 2},
      {.q = {2, 40, 256}, .keys = 1300},
      {.q = {4, 21, 80}, .keys = 1500, .group = 4, .window = 1100},
      {.q = {2, 21, 96}, .keys = 1100, .cap = 3.0},
      // Windows, and caps.
      {.q = {4, 301, 80}, .keys = 431, .group = 4, .window = 70},
      {.q = {2, 2, 77, 200}, .keys = 77, .group = 2, .window = 33},
      {.q = {2, 4, 131, 128}, .keys = 131, .group = 2, .window = 50, .cap = 1.0},
      {.q = {2, 77, 256}, .keys = 77, .scale = 0.5, .cap = 4.0},
      // Every width that kernels have comes with every mask, and so do widths between.
      {.q = {2, 149, 24}, .keys = 149, .cap = 30.0},
      {.q = {2, 133, 64}, .keys = 261, .causal = false, .cap = 0.5},
      {.q = {4, 261, 64}, .keys = 330, .group = 4, .window = 150, .cap = 3.0},
      {.q = {2, 2, 133, 80}, .keys = 133, .group = 2, .window = 40, .cap = 2.0},
      {.q = {4, 261, 96}, .keys = 330, .group = 4, .cap = 2.0},
      {.q = {2, 2, 133, 104}, .keys = 261, .causal = false, .group = 2, .cap = 5.0},
      {.q = {2, 149, 96}, .keys = 200, .window = 70, .cap = 1.0},
      {.q = {2, 261, 128}, .keys = 261, .scale = 1.0, .cap = 20.0},
      {.q = {2, 133, 192}, .keys = 200, .window = 70, .cap = 2.0},
      {.q = {2, 4, 90, 136}, .keys = 190, .causal = false, .group = 2, .cap = 3.0},
      {.q = {2, 2, 133, 256},
       .keys = 133,
       .token_major = true,
       .group = 2,
       .window = 70,
       .cap = 1.0},
      {.q = {1, 4, 90, 256}, .keys = 90, .causal = false, .group = 4, .cap = 50.0},
      // Documents: of every kernel's width, of few tiles and of many, at ends of tiles.
      {.q = {2, 4, 300, 64}, .keys = 300, .group = 4, .documents = {128, 64, 1, 107}},
      {.q = {2, 2, 333, 80}, .keys = 333, .documents = {111, 111, 111}},
      {.q = {1, 4, 290, 96}, .keys = 290, .group = 2, .documents = {7, 250, 33}},
      {.q = {2, 4, 517, 128}, .keys = 517, .group = 2, .documents = {256, 130, 1, 1, 129}},
      {.q = {1, 2, 2100, 128}, .keys = 2100, .documents = {1030, 40, 1030}},
      {.q = {2, 2, 261, 104}, .keys = 261, .group = 2, .window = 60, .documents = {200, 61}},
      {.q = {2, 2, 200, 192}, .keys = 200, .documents = {65, 64, 71}},
      {.q = {2, 2, 180, 256}, .keys = 180, .token_major = true, .documents = {100, 80}},
      {.q = {2, 2, 400, 64}, .keys = 400, .window = 90, .documents = {1, 126, 129, 1, 143}},
      {.q = {1, 8, 700, 128}, .keys = 700, .token_major = true, .group = 4, .documents = {700}},
      {.q = {2, 4, 300, 200}, .keys = 300, .group = 2, .window = 80, .documents = {63, 150, 87}},
      {.q = {2, 4, 261, 64}, .keys = 261, .group = 4, .cap = 3.0, .documents = {130, 131}}};
}

std::vector<Wish> all_wishes() {
  std::vector<Wish> out = wishes();
  for (Wish& w : wishes_for_gpus()) out.emplace_back(std::move(w)).is_for_gpus = true;
  return out;
}

std::vector<OpCase> forward_cases() {
  std::vector<OpCase> out;
  for (const Wish& w : all_wishes()) out.push_back(forward_on(w));
  // All scores equal; a negative scale.
  OpCase equal = forward_on({{2, 83, 32}, 83, true});
  equal.operands[0].low = equal.operands[0].high = 0.0;
  out.push_back(equal);
  out.push_back(forward_on({{3, 29, 16}, 29, true, Stored::kPlain, 1.0, -0.4}));
  return out;
}

std::vector<OpCase> backward_cases() {
  std::vector<OpCase> out;
  for (Wish w : all_wishes()) {
    if (w.keys == 1) continue;  // dq and dk are 0 then: no size to measure an error by
    w.reach = 0.5;
    out.push_back(backward_on(w));
  }
  return out;
}

// Covers one new token and several; positions at the ends of a cache and of its parts; heads that
// share keys, windows, caps, heads turned whole, in part and not at all, widths that are no whole
// packs, operands as a model stores them.
std::vector<OpCase> cached_cases() {
  struct Cache {
    Shape q;
    std::int64_t keys = 0, group = 1, position = 0, window = 0, turned = 0;
    double cap = 0.0;
    Stored how = Stored::kPlain;
  };
  const Cache all[] = {
      {.q = {1, 1, 1, 1}, .keys = 1},
      {.q = {2, 3, 1, 64}, .keys = 40, .position = 17, .turned = 64},
      {.q = {2, 3, 1, 64}, .keys = 40, .position = 39},
      {.q = {1, 8, 1, 64}, .keys = 1200, .group = 4, .position = 0, .turned = 64},
      {.q = {1, 8, 1, 64}, .keys = 1200, .group = 4, .position = 600, .turned = 32},
      {.q = {1, 8, 1, 128}, .keys = 2063, .group = 8, .position = 2062, .turned = 128},
      {.q = {1, 6, 1, 80}, .keys = 600, .group = 3, .position = 299, .turned = 20},
      {.q = {1, 2, 1, 256}, .keys = 1111, .group = 2, .position = 1023, .window = 100},
      {.q = {1, 4, 1, 200}, .keys = 70, .group = 4, .position = 33, .turned = 200, .cap = 1.5},
      {.q = {2, 2, 1, 34}, .keys = 19, .position = 9, .turned = 34},
      {.q = {1, 4, 5, 16}, .keys = 30, .group = 2, .position = 11, .turned = 16},
      {.q = {1, 3, 37, 64}, .keys = 600, .position = 490, .window = 33, .turned = 64, .cap = 2.0},
      {.q = {2, 4, 13, 64}, .keys = 13, .group = 4, .turned = 64, .how = Stored::kHeads},
      {.q = {2, 4, 3, 24}, .keys = 21, .position = 18, .turned = 6, .how = Stored::kSliced}};
  std::vector<OpCase> out;
  for (const Cache& c : all) {
    const std::int64_t tokens = c.q[2];
    const Shape k = keys_of({.q = c.q, .keys = tokens, .group = c.group});
    const Shape cache = keys_of({.q = c.q, .keys = c.keys, .group = c.group});
    OpCase one{{stored(c.q, c.how, -1.0, 1.0), stored(k, c.how, -1.0, 1.0), stored(k, c.how),
                plain(cache, -1.0, 1.0), plain(cache), position(c.position)},
               {{"scale", 0.3}, {"cap", c.cap}, {"window", c.window}}};
    for (int table = 0; c.turned > 0 && table < 2; ++table) {
      one.operands.push_back(wide({tokens, c.turned / 2}, -1.0, 1.0));
    }
    out.push_back(std::move(one));
  }
  return out;
}

OpCase documents_on(const Wish& w) {
  OpCase out = forward_on(w);
  out.attrs = {{"scale", w.scale}, {"cap", w.cap}, {"window", w.window}};
  return out;
}

}  // namespace

std::vector<OpTest> attention_tests() {
  constexpr double kFloor = 0x1p-17;  // sums of hundreds of products, in parts of float32
  return {
      {.op = "flash_attention",
       .bound = Bound::kUnfused,
       .cases = forward_cases(),
       .floor_share = kFloor},
      {.op = "flash_attention_grad",
       .bound = Bound::kUnfused,
       .cases = backward_cases(),
       .gradient_outputs = {},
       .floor_share = kFloor},
      {.op = "attention_of_documents",
       .bound = Bound::kUnfused,
       .cases =
           {documents_on({.q = {2, 4, 37, 16}, .keys = 37, .group = 2, .documents = {1, 20, 16}}),
            documents_on({.q = {3, 29, 8}, .keys = 29, .documents = {29}}),
            documents_on(
                {.q = {2, 2, 21, 8}, .keys = 21, .window = 6, .cap = 2.0, .documents = {13, 8}}),
            documents_on({.q = {9, 4}, .keys = 9, .documents = {4, 5}})},
       .floor_share = kFloor},
      {.op = "attention_with_cache",
       .bound = Bound::kUnfused,
       .cases = cached_cases(),
       .gradient_outputs = {},
       .floor_share = kFloor},
      {.op = "cached_attention",
       .bound = Bound::kUnfused,
       .cases = cached_cases(),
       .gradient_outputs = {},
       .floor_share = kFloor}};
}

}  // namespace tracestep::testing
