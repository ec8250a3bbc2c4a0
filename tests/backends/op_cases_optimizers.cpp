// AdamW and its relatives: of one tensor and of many, with moments and weights in 8 bits.
#include <cmath>

#include "backends/op_cases.h"
#include "ops/moment_codes.h"
#include "ops/nf4_codes.h"
#include "support/host_values.h"

namespace tracestep::testing {
namespace {

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
// A case with the operand `apply`: a step that counts, or one that changes nothing.
OpCase adamw_if(bool apply, Shape shape, bool wide_state) {
  OpCase out = adamw_on(std::move(shape), wide_state, 0.1, true);
  const double value = apply ? 1.0 : 0.0;
  out.operands.push_back({.shape = {}, .low = value, .high = value, .holds = Holds::kBool});
  return out;
}

// A case with the operand `count`. Moments are wide: narrow ones are in exec/moments_test.cpp.
OpCase adamw_counted(Shape shape, bool wide_state) {
  OpCase out = adamw_if(true, std::move(shape), wide_state);
  out.operands.push_back(wide({}, 7.0, 7.0));
  return out;
}

// The case with a step size that comes with a factor on eps, which is large enough to be seen.
OpCase in_pairs(OpCase out, std::size_t step_size) {
  out.operands[step_size] = wide({2}, 0.1, 0.9);
  out.attrs.set("eps", 0.5);
  return out;
}

OpCase stochastic_round_on(const Shape& shape, bool upper, bool of_weight = false) {
  return {{wide(shape), plain(shape), plain(shape), wide({}, 3.0, 3.0)},
          {{"upper", upper}, {"of_weight", of_weight}}};
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
          in_pairs(multi_adamw_on({{1031}, {128}}, true, nullptr, true), 1),
          // More groups than one table holds.
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

// Magnitudes of blocks are above 0, so that no sum cancels.
OpCase nf4_of(const Shape& shape) {
  const std::int64_t count = shape.product();
  Shape pairs = shape;
  pairs[pairs.rank() - 1] /= 2;
  return {{bytes(pairs), bytes({nf4_blocks(count)}), wide({nf4_groups(count)}, 0.1, 2.0),
           wide({1}, 3.0, 4.0)},
          {{"shape", shape}}};
}

// A part of a matrix that ranks divide by columns: rows of magnitudes and of scales.
OpCase nf4_of_part(std::int64_t rows, std::int64_t columns, std::int64_t group) {
  const std::int64_t blocks = columns / kNf4Block;
  return {{bytes({rows, columns / 2}), bytes({rows, blocks}),
           wide({rows, blocks / group}, 0.1, 2.0), wide({1}, 3.0, 4.0)},
          {{"shape", Shape{rows, columns}}, {"group", group}}};
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
          // More groups than one table holds.
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
               // More groups than one table holds.
               for_gpus(adamw_codes_on({16}, 16, 330, with(false, &kYes), 2.0))};
  OpCase counted = with(false, nullptr);
  counted.attrs.set("counted", true);
  counted.operands.push_back(wide({}, 7.0, 7.0));
  out.cases.push_back(adamw_codes_on({32, 48}, 80, 1, counted, 2.0));
  return out;
}

}  // namespace

std::vector<OpTest> optimizer_tests() {
  return {
      composite("adamw",
                {adamw_on({1031}, true, 0.1, false), adamw_on({3, 5}, true, 0.0, true),
                 adamw_on({0}, true, 0.1, false), adamw_on({1}, true, 0.1, true),
                 adamw_on({67, 31}, false, 0.1, true), adamw_if(true, {1031}, true),
                 adamw_if(false, {1031}, true), adamw_if(false, {67, 31}, false),
                 adamw_if(false, {0}, true), adamw_counted({1031}, true),
                 in_pairs(adamw_on({67, 31}, true, 0.1, false), 5)},
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
      {.op = "widen_nf4",
       .cases = {nf4_of({64}), nf4_of({3, 128}), nf4_of({131, 192}), nf4_of({0, 64}),
                 nf4_of({32, 6}), nf4_of({300, 64}), nf4_of_part(7, 192, 1),
                 nf4_of_part(33, 256, 2)},
       .gradient_outputs = {}},
      composite("adamw_8bit", adamw_8bit_cases(), {}),
      refresh_codes(),
      adamw_codes(),
      // What is rounded in a product grows as small singular values do, by up to 3.4 in each step.
      {.op = "newton_schulz",
       .bound = Bound::kUnfused,
       .cases = {{{plain({16, 48})}},
                 {{plain({67, 31})}},
                 {{stored({24, 24}, Stored::kTransposed)}},
                 {{plain({1, 37})}},
                 {{plain({5, 8}, 0.0, 0.0)}},
                 {{plain({0, 8})}}},
       .gradient_outputs = {},
       .floor_share = 0x1p-16},
      {.op = "stochastic_round",
       .bound = Bound::kBeside,
       .cases = {stochastic_round_on({1031}, false), stochastic_round_on({67, 31}, true),
                 stochastic_round_on({0}, false), stochastic_round_on({1}, true),
                 stochastic_round_on({1031}, false, true)},
       .dtypes = {DType::kF32, DType::kBF16},
       .gradient_outputs = {}},
  };
}

}  // namespace tracestep::testing
