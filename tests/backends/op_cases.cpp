#include "backends/op_cases.h"

#include <ostream>

#include "support/backends.h"

namespace tracestep::testing {

Operand plain(Shape shape, double low, double high) {
  return {.shape = shape, .low = low, .high = high};
}
Operand stored(Shape shape, Stored how, double low, double high) {
  return {.shape = shape, .low = low, .high = high, .stored = how};
}
Operand wide(Shape shape, double low, double high) {
  return {.shape = shape, .low = low, .high = high, .holds = Holds::kWide};
}
Operand indices(Shape shape, std::int64_t size) {
  return {.shape = shape,
          .low = 0.0,
          .high = static_cast<double>(size - 1),
          .holds = Holds::kIndex,
          .differentiable = false};
}
Operand position(std::int64_t value) {
  const auto at = static_cast<double>(value);
  return {.shape = {}, .low = at, .high = at, .holds = Holds::kIndex, .differentiable = false};
}
Operand constant(Operand operand) {
  operand.differentiable = false;
  return operand;
}

OpCase for_gpus(OpCase one) {
  one.is_for_gpus = true;
  return one;
}

std::vector<OpCase> elementwise_cases(int count, double low, double high) {
  const auto all = [&](Shape shape, Stored how) {
    return OpCase{
        std::vector<Operand>(static_cast<std::size_t>(count), stored(shape, how, low, high))};
  };
  std::vector<OpCase> cases{all({}, Stored::kPlain),          all({0, 3}, Stored::kPlain),
                            all({1, 1}, Stored::kPlain),      all({1031}, Stored::kPlain),
                            all({67, 131}, Stored::kPlain),   all({7, 31}, Stored::kTransposed),
                            all({3, 5, 17}, Stored::kSliced), all({2, 3, 5, 9}, Stored::kHeads),
                            all({13, 37}, Stored::kBroadcast)};
  // Operands that differ in how they lie.
  if (count > 1) {
    OpCase mixed = all({29, 23}, Stored::kPlain);
    mixed.operands.back().stored = Stored::kTransposed;
    cases.push_back(mixed);
    mixed.operands.front().stored = Stored::kBroadcast;
    cases.push_back(mixed);
  }
  return cases;
}

OpTest composite(std::string op, std::vector<OpCase> cases, std::vector<int> gradient_outputs) {
  return {.op = std::move(op),
          .bound = Bound::kUnfused,
          .cases = std::move(cases),
          .gradient_outputs = std::move(gradient_outputs)};
}

std::vector<OpCase> with_attrs(std::vector<OpCase> cases, const Attrs& attrs) {
  for (OpCase& c : cases) c.attrs = attrs;
  return cases;
}

std::vector<OpCase> with_range(std::vector<OpCase> cases, int operand, double low, double high) {
  for (OpCase& c : cases) {
    Operand& o = c.operands.at(static_cast<std::size_t>(operand));
    o.low = low;
    o.high = high;
  }
  return cases;
}

std::ostream& operator<<(std::ostream& out, const OpTest& test) {
  return out << test.op;
}

const std::vector<OpTest>& op_tests() {
  static const std::vector<OpTest> all = [] {
    std::vector<OpTest> out;
    for (auto* family : {elementwise_tests, movement_tests, product_tests, composite_tests,
                         optimizer_tests, attention_tests}) {
      for (OpTest& test : family()) out.push_back(std::move(test));
    }
    if (backends_under_test().size() > 1) return out;
    for (OpTest& test : out) {
      std::erase_if(test.cases, [](const OpCase& c) { return c.is_for_gpus; });
    }
    return out;
  }();
  return all;
}

const std::vector<Unsupported>& unsupported_ops() {
  static const std::vector<Unsupported> all{
      {"reference", "fused", "put back in place: the oracle runs ops one by one"},
      {"reference", "matmul_add", "decomposed: the oracle rounds as the parts do"},
      {"reference", "matmul_add_rows", "decomposed: the oracle rounds as the parts do"},
      {"reference", "matmul_bias", "decomposed: the oracle rounds nothing"},
      {"reference", "matmul_swiglu", "decomposed: the oracle runs its parts"},
      {"cpu", "matmul_swiglu", "decomposed: a CPU runs its parts as fast"},
      {"null", "matmul_swiglu", "stands for devices that decompose it"},
      {"reference", "matmul_swiglu_grad", "decomposed: the oracle runs its parts"},
      {"cpu", "matmul_swiglu_grad", "decomposed: a CPU runs its parts as fast"},
      {"null", "matmul_swiglu_grad", "stands for devices that decompose it"},
      {"cpu", "pow", "decomposed: its parts are fused, or rare"},
      {"cuda", "pow", "decomposed: its parts are fused, or rare"},
      {"null", "pow", "stands for devices that decompose it"},
      {"reference", "linear_grad", "decomposed: the oracle multiplies twice"},
      {"cpu", "linear_grad", "decomposed: products of a CPU share nothing"},
      {"null", "linear_grad", "stands for devices that decompose it"},
      {"reference", "quantize", "decomposed: the oracle runs its parts, unrounded"},
      {"cpu", "quantize", "decomposed: there is nothing to gain by 8 bits"},
      {"null", "quantize", "stands for devices that decompose it"},
      {"reference", "quantize_delayed", "decomposed: the oracle runs its parts, unrounded"},
      {"cpu", "quantize_delayed", "decomposed: there is nothing to gain by 8 bits"},
      {"null", "quantize_delayed", "stands for devices that decompose it"},
      {"reference", "swiglu_quantized", "decomposed: the oracle runs its parts, unrounded"},
      {"cpu", "swiglu_quantized", "decomposed: there is nothing to gain by 8 bits"},
      {"null", "swiglu_quantized", "stands for devices that decompose it"},
      {"reference", "swiglu_grad_quantized", "decomposed: the oracle runs its parts, unrounded"},
      {"cpu", "swiglu_grad_quantized", "decomposed: there is nothing to gain by 8 bits"},
      {"null", "swiglu_grad_quantized", "stands for devices that decompose it"},
      {"reference", "refresh_codes", "decomposed: the oracle runs its parts, unrounded"},
      {"cpu", "refresh_codes", "decomposed: there is nothing to gain by 8 bits"},
      {"null", "refresh_codes", "stands for devices that decompose it"},
      {"reference", "adamw_codes", "decomposed: the oracle runs its parts, unrounded"},
      {"cpu", "adamw_codes", "decomposed: there is nothing to gain by 8 bits"},
      {"null", "adamw_codes", "stands for devices that decompose it"},
      {"reference", "largest_magnitudes", "decomposed: the oracle runs its parts, unrounded"},
      {"cpu", "largest_magnitudes", "decomposed: only weights in 8 bits need it"},
      {"null", "largest_magnitudes", "stands for devices that decompose it"},
      {"reference", "quantize_parts", "decomposed: the oracle runs its parts, unrounded"},
      {"cpu", "quantize_parts", "decomposed: there is nothing to gain by 8 bits"},
      {"null", "quantize_parts", "stands for devices that decompose it"},
      {"reference", "transpose_codes", "decomposed: the oracle runs its parts, unrounded"},
      {"cpu", "transpose_codes", "decomposed into a copy"},
      {"null", "transpose_codes", "stands for devices that decompose it"},
      {"reference", "scaled_matmul", "decomposed into a product and its scale"},
      {"cpu", "scaled_matmul", "decomposed into a product of float32 and its scale"},
      {"null", "scaled_matmul", "stands for devices that decompose it"},
      {"reference", "scaled_matmul_add", "decomposed into a product, its scale and sums"},
      {"cpu", "scaled_matmul_add", "decomposed: there is nothing to gain by 8 bits"},
      {"null", "scaled_matmul_add", "stands for devices that decompose it"},
      {"reference", "cross_entropy_with_grad", "decomposed: the oracle runs ops one by one"},
      {"reference", "adamw_8bit", "decomposed: the oracle runs its parts"},
      {"reference", "multi_adamw", "decomposed: the oracle updates one tensor at a time"},
      {"cpu", "newton_schulz", "decomposed into products"},
      {"cuda", "newton_schulz", "decomposed into products"},
      {"null", "newton_schulz", "stands for devices that decompose it"},
      {"cpu", "fused", "put back in place: nothing is compiled at run time"},
      {"reference", "gemv", "decomposed: the oracle runs its parts"},
      {"cpu", "gemv", "decomposed: a CPU runs its parts as fast"},
      {"null", "gemv", "stands for devices that decompose it"},
      {"reference", "cached_attention", "decomposed: the oracle runs its parts"},
      {"cpu", "cached_attention", "decomposed: a CPU runs its parts as fast"},
      {"null", "cached_attention", "stands for devices that decompose it"},
      {"reference", "attention_with_cache", "decomposed into what it writes and attention"},
      {"cpu", "attention_with_cache", "decomposed into what it writes and attention"},
      {"cuda", "attention_with_cache", "decomposed, or cached_attention where that is asked for"},
      {"null", "attention_with_cache", "stands for devices that decompose it"},
      {"cpu", "attention", "decomposed into two products around a softmax"},
      {"cuda", "attention", "decomposed into two products around a softmax"},
      {"cuda", "on_first_rank", "sums in one order for any number of ranks are of the CPU"},
      {"null", "fused", "stands for devices that decompose it"},
      {"null", "attention", "stands for devices that decompose it"},
      {"reference", "attention_of_documents", "decomposed into two products around a softmax"},
      {"cpu", "attention_of_documents", "decomposed into two products around a softmax"},
      {"cuda", "attention_of_documents", "decomposed into two products around a softmax"},
      {"null", "attention_of_documents", "stands for devices that decompose it"},
  };
  return all;
}

}  // namespace tracestep::testing
