// Codes of AdamW's moments, by their definition. The oracle rounds to nearest, where other devices
// round at random.
#include <algorithm>
#include <cmath>

#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"
#include "ops/moment_codes.h"

namespace tracestep::reference {
namespace {

// The numbers that codes stand for: from 0 to 2 - 1/16, with exponents from 0 to top() and 4 bits
// of mantissa. Codes of the first moment (`is_first`) have a sign, and so half as many exponents.
struct Kind {
  bool is_first = false;
  int top() const { return is_first ? 7 : 15; }
};

double number_of(Kind kind, int magnitude) {
  const int exponent = magnitude / 16, mantissa = magnitude % 16;
  if (exponent == 0) return std::ldexp(mantissa, 1 - kind.top() - 4);
  return std::ldexp(16 + mantissa, exponent - kind.top() - 4);
}

int nearest(Kind kind, double y) {
  int best = 0;
  for (int code = 1; code < 16 * (kind.top() + 1); ++code) {
    if (std::abs(number_of(kind, code) - y) < std::abs(number_of(kind, best) - y)) best = code;
  }
  return best;
}

double scale_of(double largest) {
  constexpr int kLeast = 20 - 127;
  if (largest == 0) return std::ldexp(1.0, kLeast);
  if (!std::isfinite(largest)) return std::nan("");
  int exponent = 0;  // largest = f · 2^exponent with f from a half to 1
  const double f = std::frexp(largest, &exponent);
  return std::ldexp(1.0, std::max(f > 31.0 / 32 ? exponent : exponent - 1, kLeast));
}

// Calls f(i, element) for the elements in row-major order.
template <class T, class F>
void for_elements(const TensorRef& tensor, F&& f) {
  const View<T> view(tensor);
  std::int64_t i = 0;
  for_each_index(tensor.shape, [&](const Dims& index) { f(i++, view[index]); });
}

void moment_codes(const KernelCall& call) {
  const Kind kind{call.attrs.flag("first")};
  const TensorRef &x = call.inputs[0], &codes = call.outputs[0], &scales = call.outputs[1];
  std::vector<double> largest(static_cast<std::size_t>(coded_blocks(x.count())));
  const auto block = [](std::int64_t i) { return static_cast<std::size_t>(i / kCodedBlock); };
  for_elements<double>(x, [&](std::int64_t i, double value) {
    double& most = largest[block(i)];
    if (!(std::abs(value) <= most)) most = std::abs(value);
  });
  std::ranges::transform(largest, largest.begin(), scale_of);
  std::vector<std::uint8_t> made;
  for_elements<double>(x, [&](std::int64_t i, double value) {
    int code = nearest(kind, std::abs(value) / largest[block(i)]);
    if (!kind.is_first && code == 0 && value > 0) code = 1;
    if (kind.is_first && std::signbit(value)) code += 128;
    made.push_back(static_cast<std::uint8_t>(code));
  });
  if (codes.data != nullptr) {
    for_elements<std::uint8_t>(
        codes, [&](std::int64_t i, std::uint8_t& out) { out = made[static_cast<std::size_t>(i)]; });
  }
  if (scales.data == nullptr) return;
  for_elements<double>(
      scales, [&](std::int64_t i, double& out) { out = largest[static_cast<std::size_t>(i)]; });
}

void from_moment_codes(const KernelCall& call) {
  const Kind kind{call.attrs.flag("first")};
  std::vector<std::uint8_t> codes;
  std::vector<double> scales;
  for_elements<std::uint8_t>(call.inputs[0],
                             [&](std::int64_t, std::uint8_t code) { codes.push_back(code); });
  for_elements<double>(call.inputs[1],
                       [&](std::int64_t, double scale) { scales.push_back(scale); });
  for_elements<double>(call.outputs[0], [&](std::int64_t i, double& x) {
    const int code = codes[static_cast<std::size_t>(i)];
    const bool is_negative = kind.is_first && code >= 128;
    const double y = number_of(kind, is_negative ? code - 128 : code);
    x = (is_negative ? -y : y) * scales[static_cast<std::size_t>(i / kCodedBlock)];
  });
}

}  // namespace

void add_moment_codes(KernelTable& table) {
  table.add("moment_codes", moment_codes);
  table.add("from_moment_codes", from_moment_codes);
}

}  // namespace tracestep::reference
