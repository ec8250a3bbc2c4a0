#include <cmath>

#include "backends/op_cases.h"
#include "ops/moment_codes.h"
#include "support/host_values.h"

namespace tracestep::testing {
namespace {

constexpr auto kTransposed = Stored::kTransposed;
constexpr auto kHeads = Stored::kHeads;

OpTest composite(std::string op, std::vector<OpCase> cases, std::vector<int> gradient_outputs) {
  return {.op = std::move(op),
          .bound = Bound::kUnfused,
          .cases = std::move(cases),
          .gradient_outputs = std::move(gradient_outputs)};
}

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
  return {on(plain({2, 3, 5, 6}), false, false),
          on(plain({2, 3, 5, 6}), true, true),
          on(plain({7, 2}), true, false),
          on(plain({1, 64}), false, true),
          on(plain({3, 0, 4}), true, false),
          on(stored({2, 3, 5, 34}, kHeads), true, false),
          on(stored({2, 3, 5, 16}, kHeads), false, true)};
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

// With `more` columns that do not count; of any values, also large ones.
OpCase with_padding(OpCase from, std::size_t logits, std::int64_t more) {
  Operand& rows = from.operands[logits];
  from.attrs = {{"columns", rows.shape[1]}};
  rows.shape = {rows.shape[0], rows.shape[1] + more};
  return from;
}

// --- adamw -------------------------------------------------------------------------------------
OpCase adamw_on(Shape shape, bool wide_state, double weight_decay, bool clipped) {
  const auto state = [&](double low, double high) {
    return wide_state ? wide(shape, low, high) : plain(shape, low, high);
  };
  OpCase out{{plain(shape), plain(shape), state(-1.0, 1.0), state(0.01, 1.0), wide({}, 1e-3, 1e-2),
              wide({}, 1e-3, 1e-2)},
             {{"weight_decay", weight_decay}, {"beta2", 0.95}}};
  if (clipped) out.operands.push_back(wide({}, 0.1, 0.9));
  return out;
}
// With the operand `apply`: a step that counts, or one that leaves everything as it was.
OpCase adamw_if(bool apply, Shape shape, bool wide_state) {
  OpCase out = adamw_on(std::move(shape), wide_state, 0.1, true);
  const double value = apply ? 1.0 : 0.0;
  out.operands.push_back({.shape = {}, .low = value, .high = value, .holds = Holds::kBool});
  return out;
}

// With the operand `count`. Moments are wide: narrow ones are in exec/moments_test.cpp.
OpCase adamw_counted(Shape shape, bool wide_state) {
  OpCase out = adamw_if(true, std::move(shape), wide_state);
  out.operands.push_back(wide({}, 7.0, 7.0));
  return out;
}

OpCase stochastic_round_on(const Shape& shape, bool upper) {
  return {{wide(shape), plain(shape), plain(shape), wide({}, 3.0, 3.0)}, {{"upper", upper}}};
}

// The rates and factors of an AdamW over groups, which follow.
OpCase adamw_factors_of(bool scaled, const bool* apply, bool shadowed) {
  OpCase out{{wide({}, 1e-3, 1e-2), wide({}, 1e-3, 1e-2)},
             {{"weight_decay", 0.1},
              {"beta2", 0.95},
              {"scaled", scaled},
              {"guarded", apply != nullptr},
              {"shadowed", shadowed}}};
  if (scaled) out.operands.push_back(wide({}, 0.1, 0.9));
  if (apply != nullptr) {
    const double value = *apply ? 1.0 : 0.0;
    out.operands.push_back({.shape = {}, .low = value, .high = value, .holds = Holds::kBool});
  }
  return out;
}

// Rates and factors, then groups: p, grad, m, v and the shadow.
OpCase multi_adamw_on(const std::vector<Shape>& shapes, bool scaled, const bool* apply,
                      bool shadowed) {
  OpCase out = adamw_factors_of(scaled, apply, shadowed);
  for (const Shape& shape : shapes) {
    for (const Operand& operand :
         {wide(shape, -2.0, 2.0), plain(shape), wide(shape, -1.0, 1.0), wide(shape, 0.01, 1.0)}) {
      out.operands.push_back(operand);
    }
    if (shadowed) out.operands.push_back(plain(shape));
  }
  return out;
}
OpCase multi_adamw_counted(const std::vector<Shape>& shapes) {
  OpCase out = multi_adamw_on(shapes, false, nullptr, true);
  out.attrs.set("counted", true);
  out.operands.insert(out.operands.begin() + 2, wide({}, 7.0, 7.0));
  return out;
}
std::vector<OpCase> multi_adamw_cases() {
  static constexpr bool kYes = true, kNo = false;
  return {multi_adamw_on({{1031}, {3, 5}, {0}, {1}, {67, 1024}}, false, nullptr, true),
          multi_adamw_on({{4096}, {8193}}, true, nullptr, true),
          multi_adamw_on({{1031}, {128}}, true, &kYes, true),
          multi_adamw_on({{1031}, {128}}, false, &kNo, true),
          multi_adamw_on({{257}}, true, &kYes, false), multi_adamw_counted({{257}, {31}}),
          // More than one table of them.
          for_gpus(multi_adamw_on(std::vector<Shape>(230, Shape{7}), false, nullptr, false))};
}

// --- moments in 8 bits --------------------------------------------------------------------------
Operand bytes(const Shape& shape) {
  return {.shape = shape, .low = 0, .high = 255, .holds = Holds::kBytes};
}

// Numbers that codes hold: what is rounded otherwise is in exec/moment_codes_test.cpp.
OpCase moment_codes_of(const Shape& shape, bool first) {
  OpCase out{{wide(shape), plain(shape), plain(shape), wide({}, 3.0, 3.0)}, {{"first", first}}};
  out.settle = [first](Tensors& leaves) {
    HostTensor& x = leaves.at("x0");
    std::vector<double> values = to_doubles(x);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double sixteenths = std::round(8 * std::abs(values[i])) + 16;
      const double value = std::ldexp(sixteenths, -4 - static_cast<int>(i % 6));
      values[i] = i % 11 == 0 ? 0.0 : first && values[i] < 0 ? -value : value;
    }
    x = from_doubles(x.dtype, x.shape, values);
  };
  return out;
}

OpCase from_moment_codes_on(const Shape& shape, bool first) {
  return {{bytes(shape), wide({coded_blocks(shape.product())}, 0.1, 2.0)}, {{"first", first}}};
}

// Rates and factors, the number of the step, then groups.
OpCase adamw_8bit_on(const std::vector<Shape>& shapes, bool scaled, const bool* apply,
                     bool shadowed) {
  OpCase out = adamw_factors_of(scaled, apply, shadowed);
  out.operands.push_back(wide({}, 7.0, 7.0));
  for (const Shape& shape : shapes) {
    const Shape scales{coded_blocks(shape.product())};
    for (const Operand& operand : {wide(shape, -2.0, 2.0), plain(shape), bytes(shape), bytes(shape),
                                   wide(scales, 0.1, 1.0), wide(scales, 0.1, 1.0)}) {
      out.operands.push_back(operand);
    }
    if (shadowed) out.operands.push_back(plain(shape));
  }
  return out;
}
std::vector<OpCase> adamw_8bit_cases() {
  static constexpr bool kYes = true, kNo = false;
  return {adamw_8bit_on({{1031}, {3, 5}, {0}, {1}, {67, 1024}}, false, nullptr, true),
          adamw_8bit_on({{4096}, {8193}}, true, nullptr, true),
          adamw_8bit_on({{1031}, {128}}, true, &kYes, true),
          adamw_8bit_on({{1031}, {128}}, false, &kNo, true),
          adamw_8bit_on({{257}}, true, &kYes, false),
          // More than one table of them.
          for_gpus(adamw_8bit_on(std::vector<Shape>(230, Shape{7}), false, nullptr, false))};
}

// --- codes of weights ---------------------------------------------------------------------------
const Attrs& weight_codes() {
  static const Attrs attrs{{"dtype", DType::kF8E4M3},
                           {"largest", AttrValue(448.0)},
                           {"room", AttrValue(2.0)},
                           {"through", DType::kBF16}};
  return attrs;
}

Operand codes(Shape shape) {
  return {.shape = std::move(shape), .holds = Holds::kCodes};
}

// Nothing was left. Steps before: none, one whose scale fits, outgrown and far too large ones.
OpTest refresh_codes() {
  OpTest out{.op = "refresh_codes",
             .bound = Bound::kUnfused,
             .dtypes = {DType::kF32},
             .gradient_outputs = {},
             .floor_share = 0x1p-8};
  const std::vector<std::pair<Shape, double>> weights{
      {{256, 128}, 1.5}, {{144, 272}, 0.0}, {{16, 16}, 20.0}, {{160, 400}, 0.25}};
  for (const std::size_t count : {std::size_t{1}, weights.size()}) {
    OpCase one{{wide({static_cast<std::int64_t>(count), 2}, 0.0, 0.0)}, weight_codes()};
    for (const auto& [shape, last] : std::span(weights).first(count)) {
      const Shape transposed{shape[1], shape[0]};
      for (const Operand& x :
           {wide(shape), wide({1}, last, last), codes(shape), codes(transposed)}) {
        one.operands.push_back(x);
      }
    }
    out.cases.push_back(std::move(one));
  }
  return out;
}

// Rates, found, and blocks of parts of so many rows each.
OpCase adamw_codes_on(const std::vector<std::int64_t>& rows, std::int64_t columns, int blocks,
                      const OpCase& factors, double largest) {
  OpCase out = factors;
  out.attrs.set("parts", static_cast<std::int64_t>(rows.size()));
  for (const auto& [name, value] : weight_codes().entries()) out.attrs.set(name, value);
  out.operands.push_back(wide({blocks, 2}));
  std::int64_t all = 0;
  for (std::int64_t part : rows) all += part;
  for (int b = 0; b < blocks; ++b) {
    for (std::int64_t part : rows) {
      const Shape shape{part, columns};
      for (const Operand& x :
           {wide(shape), plain(shape), wide(shape, -1.0, 1.0), wide(shape, 0.01, 1.0)}) {
        out.operands.push_back(x);
      }
    }
    for (const Operand& x :
         {codes({all, columns}), codes({columns, all}), wide({1}, largest, largest)}) {
      out.operands.push_back(x);
    }
  }
  return out;
}

// A code may be the one beside, where the update of its weight is rounded in another order.
OpTest adamw_codes() {
  static constexpr bool kYes = true, kNo = false;
  OpTest out{
      .op = "adamw_codes", .bound = Bound::kUnfused, .gradient_outputs = {}, .floor_share = 0x1p-6};
  const auto with = [](bool scaled, const bool* apply) {
    OpCase factors = multi_adamw_on({}, scaled, apply, false);
    Attrs attrs;
    for (const auto& [name, value] : factors.attrs.entries()) {
      if (name != "shadowed") attrs.set(name, value);
    }
    factors.attrs = attrs;
    return factors;
  };
  out.cases = {adamw_codes_on({144}, 272, 1, with(false, nullptr), 2.0),
               adamw_codes_on({16, 160, 16}, 144, 2, with(true, &kYes), 2.0),
               adamw_codes_on({128, 256}, 128, 1, with(true, &kNo), 1.0),
               // More than one table of them.
               for_gpus(adamw_codes_on({16}, 16, 330, with(false, &kYes), 2.0))};
  OpCase counted = with(false, nullptr);
  counted.attrs.set("counted", true);
  counted.operands.push_back(wide({}, 7.0, 7.0));
  out.cases.push_back(adamw_codes_on({32, 48}, 80, 1, counted, 2.0));
  return out;
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
           with_padding(cross_entropy_on(2, 40003), 0, 61)},
          {0}),
      composite("cross_entropy_grad",
                {cross_entropy_grad_on(5, 7), cross_entropy_grad_on(1, 1),
                 cross_entropy_grad_on(67, 257), cross_entropy_grad_on(9, 64),
                 cross_entropy_grad_on(2, 40003), with_padding(cross_entropy_grad_on(5, 7), 1, 1),
                 with_padding(cross_entropy_grad_on(9, 57), 1, 3),
                 with_padding(cross_entropy_grad_on(3, 1031), 1, 57),
                 with_padding(cross_entropy_grad_on(2, 40003), 1, 61)},
                {}),
      composite("cross_entropy_with_grad",
                {cross_entropy_with_grad_on(5, 7), cross_entropy_with_grad_on(1, 1),
                 cross_entropy_with_grad_on(67, 257), cross_entropy_with_grad_on(9, 64),
                 cross_entropy_with_grad_on(3, 1031, 30.0), cross_entropy_with_grad_on(2, 40003),
                 with_padding(cross_entropy_with_grad_on(5, 7), 1, 1),
                 with_padding(cross_entropy_with_grad_on(9, 57), 1, 3),
                 with_padding(cross_entropy_with_grad_on(3, 1031, 30.0), 1, 57),
                 with_padding(cross_entropy_with_grad_on(2, 40003), 1, 61)},
                {}),
      composite("adamw",
                {adamw_on({1031}, true, 0.1, false), adamw_on({3, 5}, true, 0.0, true),
                 adamw_on({0}, true, 0.1, false), adamw_on({1}, true, 0.1, true),
                 adamw_on({67, 31}, false, 0.1, true), adamw_if(true, {1031}, true),
                 adamw_if(false, {1031}, true), adamw_if(false, {67, 31}, false),
                 adamw_if(false, {0}, true), adamw_counted({1031}, true)},
                {}),
      composite("multi_adamw", multi_adamw_cases(), {}),
      {.op = "moment_codes",
       .bound = Bound::kExact,
       .cases = {moment_codes_of({1031}, true), moment_codes_of({67, 31}, false),
                 moment_codes_of({0}, true), moment_codes_of({1}, false),
                 moment_codes_of({256}, false)},
       .gradient_outputs = {}},
      {.op = "from_moment_codes",
       .bound = Bound::kExact,
       .cases = {from_moment_codes_on({1031}, true), from_moment_codes_on({67, 31}, false),
                 from_moment_codes_on({0}, true), from_moment_codes_on({1}, false)},
       .gradient_outputs = {}},
      composite("adamw_8bit", adamw_8bit_cases(), {}),
      refresh_codes(),
      adamw_codes(),
      {.op = "stochastic_round",
       .bound = Bound::kBeside,
       .cases = {stochastic_round_on({1031}, false), stochastic_round_on({67, 31}, true),
                 stochastic_round_on({0}, false), stochastic_round_on({1}, true)},
       .dtypes = {DType::kF32, DType::kBF16},
       .gradient_outputs = {}},
  };
}

}  // namespace tracestep::testing
