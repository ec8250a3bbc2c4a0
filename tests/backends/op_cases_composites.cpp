// Activations, norms, attention in parts, losses.
#include "backends/op_cases.h"

namespace tracestep::testing {
namespace {

constexpr auto kTransposed = Stored::kTransposed;
constexpr auto kHeads = Stored::kHeads;

// --- softmax -----------------------------------------------------------------------------------
std::vector<OpCase> softmax_cases() {
  const Attrs causal{{"causal", true}, {"scale", 0.7}};
  return {{{plain({5, 7})}},
          {{plain({1031})}},
          {{plain({3, 4, 17}, -40.0, 40.0)}, {{"scale", 0.5}}},
          {{plain({9, 1})}},
          {{plain({0, 7})}},
          {{stored({13, 5}, kTransposed)}},
          {{plain({2, 33, 33})}, causal},
          {{plain({3, 19})}, causal},
          {{plain({1, 1})}, causal},
          {{plain({2, 3, 8}), position(2)}, causal},
          {{plain({2, 1, 129}), position(0)}, causal},
          // Whole packs, in a warp and in a block, and rows that no kernel keeps in registers.
          {{plain({9, 64})}},
          {{plain({2, 256, 256})}, causal},
          {{plain({3, 2304})}, {{"scale", -0.3}}},
          {{plain({2, 40003})}}};
}

std::vector<OpCase> softmax_grad_cases() {
  std::vector<OpCase> out;
  for (const Shape& shape : {Shape{5, 7}, Shape{1031}, Shape{3, 4, 17}, Shape{9, 1}, Shape{0, 7},
                             Shape{9, 64}, Shape{5, 2304}, Shape{2, 40003}}) {
    out.push_back({{plain(shape), plain(shape, 0.0, 0.3)}, {{"scale", 0.7}}});
  }
  return out;
}

std::vector<OpCase> row_cases() {
  return {{{plain({5, 7})}},  {{plain({1031})}},    {{plain({3, 4, 17}, -40.0, 40.0)}},
          {{plain({1, 1})}},  {{plain({0, 7})}},    {{stored({13, 5}, kTransposed)}},
          {{plain({9, 64})}}, {{plain({2, 40003})}}};
}

// --- rms_norm ----------------------------------------------------------------------------------
std::vector<OpCase> rms_norm_cases() {
  return {{{plain({5, 7}), plain({7})}},
          {{plain({3, 4, 17}), plain({17})}, {{"eps", 0.1}}},
          {{plain({67, 257}), plain({257})}},
          {{plain({2, 1}), plain({1})}},
          {{plain({0, 7}), plain({7})}},
          {{plain({31}), plain({31})}},
          {{stored({5, 7}, kTransposed), plain({7})}},
          {{plain({5, 33}), wide({33})}},
          {{plain({9, 64}), plain({64})}},
          {{plain({5, 768}), wide({768})}},
          {{plain({2, 20003}), plain({20003})}}};
}

std::vector<OpCase> rms_norm_grad_cases() {
  const auto on = [](const Shape& shape, const Shape& rows, bool wide_weight = false) {
    const Shape width{shape.back()};
    return OpCase{{plain(shape), plain(shape), wide_weight ? wide(width) : plain(width),
                   wide(rows, 0.5, 1.5)}};
  };
  return {on({5, 7}, {5}),        on({3, 4, 17}, {3, 4}), on({67, 257}, {67}),
          on({2, 1}, {2}),        on({0, 7}, {0}),        on({31}, {}),
          on({5, 33}, {5}, true), on({1031, 16}, {1031}), on({70, 768}, {70}, true),
          on({3, 4097}, {3}),     on({5, 9001}, {5})};
}

// --- layer_norm --------------------------------------------------------------------------------
std::vector<OpCase> layer_norm_cases() {
  const auto on = [](Operand x, const Operand& weight, bool has_bias) {
    OpCase out{{std::move(x), weight}, {{"eps", 0.1}}};
    if (has_bias) out.operands.push_back(weight);
    return out;
  };
  return {on(plain({5, 7}), plain({7}), true),
          on(plain({3, 4, 17}), wide({17}), false),
          on(plain({67, 257}), plain({257}), true),
          on(plain({2, 1}), plain({1}), true),
          on(plain({0, 7}), plain({7}), true),
          on(plain({31}), plain({31}), false),
          on(stored({5, 7}, kTransposed), plain({7}), true),
          on(plain({9, 64}), plain({64}), false),
          on(plain({5, 768}), wide({768}), true),
          on(plain({2, 20003}), plain({20003}), true)};
}

std::vector<OpCase> layer_norm_grad_cases() {
  const auto on = [](const Shape& shape, const Shape& rows, bool wide_weight = false) {
    const Shape width{shape.back()};
    return OpCase{{plain(shape), plain(shape), wide_weight ? wide(width) : plain(width),
                   wide(rows, -0.5, 0.5), wide(rows, 0.5, 1.5)}};
  };
  return {on({5, 7}, {5}),           on({3, 4, 17}, {3, 4}), on({67, 257}, {67}),
          on({2, 1}, {2}),           on({0, 7}, {0}),        on({31}, {}),
          on({70, 768}, {70}, true), on({1031, 16}, {1031}), on({5, 33}, {5}, true),
          on({3, 4097}, {3}),        on({5, 9001}, {5})};
}

// --- rope --------------------------------------------------------------------------------------
std::vector<OpCase> rope_cases() {
  const auto on = [](Operand x, bool wide_table, bool inverse) {
    const Shape table{x.shape.back(1), x.shape.back() / 2};
    const Operand angle = constant(wide_table ? wide(table, -1.0, 1.0) : plain(table, -1.0, 1.0));
    return OpCase{{x, angle, angle}, {{"inverse", inverse}}};
  };
  const auto by_halves = [](OpCase from) {
    from.attrs.set("halves", true);
    return from;
  };
  return {on(plain({2, 3, 5, 6}), false, false),
          on(plain({2, 3, 5, 6}), true, true),
          on(plain({7, 2}), true, false),
          on(plain({1, 64}), false, true),
          on(plain({3, 0, 4}), true, false),
          on(stored({2, 3, 5, 34}, kHeads), true, false),
          on(stored({2, 3, 5, 16}, kHeads), false, true),
          by_halves(on(plain({2, 3, 5, 6}), true, true)),
          by_halves(on(plain({7, 2}), true, false)),
          by_halves(on(plain({3, 0, 4}), true, false)),
          by_halves(on(stored({2, 3, 5, 34}, kHeads), true, false)),
          by_halves(on(stored({2, 3, 5, 64}, kHeads), false, true))};
}

// --- attention ---------------------------------------------------------------------------------
std::vector<OpCase> attention_cases() {
  const auto on = [](Shape q, std::int64_t keys, bool causal, Stored how = Stored::kPlain) {
    Shape kv = q;
    kv[kv.rank() - 2] = keys;
    return OpCase{{stored(q, how), stored(kv, how), stored(kv, how)},
                  {{"scale", 0.4}, {"causal", causal}}};
  };
  OpCase cached = on({2, 1, 8}, 9, true);
  cached.operands.push_back(position(5));
  // Two heads of keys for six of queries; capped scores; windows, with a position too.
  const auto with = [&](double cap, std::int64_t window, bool is_grouped) {
    OpCase out = on({2, 6, 9, 4}, 9, true);
    if (is_grouped) out.operands[1].shape[1] = out.operands[2].shape[1] = 2;
    out.attrs.set("cap", cap);
    out.attrs.set("window", window);
    return out;
  };
  OpCase cached_window = with(0.0, 3, true);
  for (Operand& operand : cached_window.operands) operand.shape[0] = 1;
  cached_window.operands[0].shape[2] = 1;
  cached_window.operands.push_back(position(5));
  return {on({2, 3, 5, 4}, 5, true),
          on({2, 3, 5, 4}, 5, false),
          on({7, 3}, 11, true),
          on({1, 1}, 1, true),
          on({2, 3, 33, 16}, 33, true, kHeads),
          on({0, 4, 2}, 4, false),
          cached,
          with(0.0, 0, true),
          with(1.5, 0, false),
          with(0.0, 4, false),
          with(1.5, 4, true),
          cached_window};
}

// --- cross-entropy -----------------------------------------------------------------------------
OpCase cross_entropy_on(std::int64_t rows, std::int64_t vocab, double reach = 2.0) {
  return {{plain({rows, vocab}, -reach, reach), indices({rows}, vocab)}};
}

OpCase cross_entropy_grad_on(std::int64_t rows, std::int64_t vocab) {
  return {
      {wide({}, 0.5, 1.5), plain({rows, vocab}), indices({rows}, vocab), wide({rows}, 1.0, 3.0)}};
}

OpCase cross_entropy_with_grad_on(std::int64_t rows, std::int64_t vocab, double reach = 2.0) {
  return {{wide({}, 0.5, 1.5), plain({rows, vocab}, -reach, reach), indices({rows}, vocab)}};
}

// With a count of the rows that count, those whose target is not `ignored`, a target that occurs.
OpCase with_ignored(OpCase from, std::int64_t ignored, double count) {
  from.operands.push_back(constant(wide({}, count, count)));
  from.attrs.set("ignore_index", ignored);
  return from;
}

// With `more` columns that do not count; of any values, also large ones.
OpCase with_padding(OpCase from, std::size_t logits, std::int64_t more) {
  Operand& rows = from.operands[logits];
  from.attrs.set("columns", rows.shape[1]);
  rows.shape = {rows.shape[0], rows.shape[1] + more};
  return from;
}

}  // namespace

std::vector<OpTest> composite_tests() {
  return {
      composite("softmax", softmax_cases(), {0}),
      composite("softmax_grad", softmax_grad_cases(), {}),
      composite("log_sum_exp", row_cases(), {0}),
      composite("silu", elementwise_cases(1, -9.0, 9.0), {0}),
      composite("silu_grad", elementwise_cases(2, -6.0, 6.0), {}),
      composite("gelu", elementwise_cases(1, -6.0, 6.0), {0}),
      composite("gelu_grad", elementwise_cases(2, -6.0, 6.0), {}),
      composite("gelu_erf", elementwise_cases(1, -6.0, 6.0), {0}),
      composite("gelu_erf_grad", elementwise_cases(2, -6.0, 6.0), {}),
      composite("swiglu", elementwise_cases(2, -6.0, 6.0), {0}),
      composite("swiglu_grad", elementwise_cases(3, -3.0, 3.0), {}),
      composite("rms_norm", rms_norm_cases(), {0}),
      composite("rms_norm_grad", rms_norm_grad_cases(), {}),
      composite("layer_norm", layer_norm_cases(), {0}),
      composite("layer_norm_grad", layer_norm_grad_cases(), {}),
      composite("rope", rope_cases(), {0}),
      composite("attention", attention_cases(), {0}),
      composite(
          "cross_entropy",
          {cross_entropy_on(5, 7), cross_entropy_on(1, 1), cross_entropy_on(129, 257),
           cross_entropy_on(3, 1031, 30.0), cross_entropy_on(9, 64), cross_entropy_on(2, 40003),
           with_padding(cross_entropy_on(5, 7), 0, 1), with_padding(cross_entropy_on(9, 57), 0, 3),
           with_padding(cross_entropy_on(3, 1031, 30.0), 0, 57),
           with_padding(cross_entropy_on(2, 40003), 0, 61),
           with_ignored(cross_entropy_on(5, 7), 2, 4.0),
           with_ignored(cross_entropy_on(129, 3), 1, 80.0),
           with_ignored(cross_entropy_on(9, 1), 0, 1.0),  // every row is ignored
           with_ignored(with_padding(cross_entropy_on(67, 5), 0, 3), 4, 50.0)},
          {0}),
      composite("cross_entropy_grad",
                {cross_entropy_grad_on(5, 7), cross_entropy_grad_on(1, 1),
                 cross_entropy_grad_on(67, 257), cross_entropy_grad_on(9, 64),
                 cross_entropy_grad_on(2, 40003), with_padding(cross_entropy_grad_on(5, 7), 1, 1),
                 with_padding(cross_entropy_grad_on(9, 57), 1, 3),
                 with_padding(cross_entropy_grad_on(3, 1031), 1, 57),
                 with_padding(cross_entropy_grad_on(2, 40003), 1, 61),
                 with_ignored(cross_entropy_grad_on(5, 7), 2, 4.0),
                 with_ignored(cross_entropy_grad_on(129, 3), 1, 80.0),
                 with_ignored(with_padding(cross_entropy_grad_on(67, 64), 1, 3), 4, 50.0)},
                {}),
      composite("cross_entropy_with_grad",
                {cross_entropy_with_grad_on(5, 7), cross_entropy_with_grad_on(1, 1),
                 cross_entropy_with_grad_on(67, 257), cross_entropy_with_grad_on(9, 64),
                 cross_entropy_with_grad_on(3, 1031, 30.0), cross_entropy_with_grad_on(2, 40003),
                 with_padding(cross_entropy_with_grad_on(5, 7), 1, 1),
                 with_padding(cross_entropy_with_grad_on(9, 57), 1, 3),
                 with_padding(cross_entropy_with_grad_on(3, 1031, 30.0), 1, 57),
                 with_padding(cross_entropy_with_grad_on(2, 40003), 1, 61),
                 with_ignored(cross_entropy_with_grad_on(5, 7), 2, 4.0),
                 with_ignored(cross_entropy_with_grad_on(129, 3), 1, 80.0),
                 with_ignored(with_padding(cross_entropy_with_grad_on(67, 64), 1, 3), 4, 50.0)},
                {}),
  };
}

}  // namespace tracestep::testing
