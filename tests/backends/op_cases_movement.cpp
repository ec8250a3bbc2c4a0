#include "backends/op_cases.h"

namespace tracestep::testing {
namespace {

constexpr auto kTransposed = Stored::kTransposed;
constexpr auto kSliced = Stored::kSliced;

OpTest generator(std::string op, std::vector<OpCase> cases) {
  return {.op = std::move(op),
          .bound = Bound::kExact,
          .cases = std::move(cases),
          .dtypes = kNumberTypes,
          .gradient_outputs = {}};
}

OpCase filled(double value, Shape shape) {
  return {{}, {{"value", value}, {"shape", shape}}};
}
OpCase counted(std::int64_t axis, Shape shape) {
  return {{}, {{"axis", axis}, {"shape", shape}}};
}

OpCase padded(Operand x, std::int64_t axis, std::int64_t start, std::int64_t size) {
  return {{x}, {{"axis", axis}, {"start", start}, {"size", size}}};
}
OpCase joined(std::vector<Operand> xs, std::int64_t axis) {
  return {std::move(xs), {{"axis", axis}}};
}

OpTest write_slice() {
  const auto at_axis = [](Operand base, Operand piece, std::int64_t at, std::int64_t axis) {
    return OpCase{{base, piece, position(at)}, {{"axis", axis}}};
  };
  return {
      .op = "write_slice",
      .bound = Bound::kExact,
      .cases = {at_axis(plain({2, 9, 3}), plain({2, 4, 3}), 5, 1),
                at_axis(plain({7}), plain({1}), 0, 0), at_axis(plain({5, 3}), plain({0, 3}), 5, 0),
                at_axis(plain({3, 2, 8, 5}), stored({3, 2, 1, 5}, Stored::kHeads), 7, -2),
                at_axis(plain({5, 11}), stored({5, 3}, kTransposed), 2, 1)},
      .dtypes = kNumberTypes,
      .gradient_outputs = {}};
}

}  // namespace

std::vector<OpTest> movement_tests() {
  return {
      generator("fill", {filled(3.0, {}), filled(7.0, {1031}), filled(0.0, {3, 5}),
                         filled(1.0, {0, 2}), filled(1.0, {1})}),
      generator("iota", {counted(0, {131}), counted(0, {3, 5}), counted(-1, {3, 5, 7}),
                         counted(1, {2, 0}), counted(0, {1})}),
      {.op = "rope_table",
       .cases = {{{}, {{"length", std::int64_t{17}}, {"width", std::int64_t{10}}}},
                 {{}, {{"length", std::int64_t{0}}, {"width", std::int64_t{2}}}},
                 {{}, {{"length", std::int64_t{512}}, {"width", std::int64_t{64}}, {"theta", 1e5}}},
                 {{},
                  {{"length", std::int64_t{40}},
                   {"width", std::int64_t{6}},
                   {"scaling", std::string("longrope")},
                   {"factors", std::string("1:1.25:30.5")},
                   {"magnitude", 1.5}}}},
       .gradient_outputs = {}},
      {.op = "copy", .bound = Bound::kExact, .cases = elementwise_cases(1), .dtypes = kAllTypes},
      {.op = "assign",
       .bound = Bound::kExact,
       .cases = elementwise_cases(2),
       .dtypes = kAllTypes,
       .gradient_outputs = {}},
      {.op = "offload",
       .bound = Bound::kExact,
       .cases = {{{plain({5, 31}), plain({5, 31})}}, {{plain({0, 3}), plain({0, 3})}}},
       .dtypes = kAllTypes,
       .gradient_outputs = {}},
      {.op = "reload",
       .bound = Bound::kExact,
       .cases = {{{plain({5, 31})}}, {{plain({1031})}}, {{plain({0, 3})}}},
       .dtypes = kAllTypes,
       .gradient_outputs = {}},
      {.op = "pad_slice",
       .bound = Bound::kExact,
       .cases = {padded(plain({5}), 0, 2, 9), padded(plain({3, 4}), 1, 0, 4),
                 padded(stored({3, 5, 7}, kTransposed), -2, 1, 8),
                 padded(stored({4, 33}, kSliced), 0, 3, 7), padded(plain({0, 3}), 0, 1, 2),
                 padded(plain({1, 1}), 1, 2, 3)},
       .dtypes = kNumberTypes},
      {.op = "concat",
       .bound = Bound::kExact,
       .cases = {joined({plain({5, 3}), plain({2, 3})}, 0), joined({plain({7})}, 0),
                 joined({plain({3, 1}), plain({3, 17}), plain({3, 0})}, 1),
                 joined({stored({4, 9}, kTransposed), stored({4, 9}, kSliced)}, -1),
                 joined({plain({2, 3, 31}), plain({2, 5, 31})}, 1)},
       .dtypes = kNumberTypes},
      write_slice(),
  };
}

}  // namespace tracestep::testing
