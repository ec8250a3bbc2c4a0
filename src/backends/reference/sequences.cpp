// Ops whose result depends on an element's place in its row or tensor: cumsum, dropout; and powers.
#include <cmath>

#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"
#include "ops/dropout_words.h"

namespace tracestep::reference {
namespace {

void pow(const KernelCall& call) {
  const View<double> a(call.inputs[0]), b(call.inputs[1]), y(call.outputs[0]);
  for_each_index(call.outputs[0].shape, [&](const Dims& i) { y[i] = std::pow(a[i], b[i]); });
}

// Sets y[j] to the sum of x[k] over k <= j, or with `reverse` over k >= j.
void cumsum(const KernelCall& call) {
  const TensorRef& out = call.outputs[0];
  const int last = out.shape.rank() - 1;
  const bool from_end = call.attrs.flag("reverse");
  Shape rows = out.shape;
  rows[last] = std::min<std::int64_t>(rows[last], 1);
  with_type(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    using Sum = std::conditional_t<std::is_same_v<T, double>, long double, T>;
    const View<T> x(call.inputs[0]), y(out);
    for_each_index(rows, [&](const Dims& row) {
      Sum sum = 0;
      for (std::int64_t j = 0; j < out.shape[last]; ++j) {
        const Dims at = replaced(row, last, from_end ? out.shape[last] - 1 - j : j);
        sum = static_cast<Sum>(sum + x[at]);
        y[at] = static_cast<T>(sum);
      }
    });
  });
}

// Drops elements by the random words that all devices use (ops/dropout_words.h).
void dropout(const KernelCall& call) {
  const double rate = call.attrs.real("rate");
  const std::int64_t batch = integer_at(call.inputs[1], {0});
  const View<double> x(call.inputs[0]), y(call.outputs[0]);
  std::uint64_t place = 0;
  for_each_index(call.outputs[0].shape, [&](const Dims& i) {
    const auto words = ops::dropout_words(call.attrs.integer("stream"), batch, place / 4);
    const double word = words[place++ % 4];
    y[i] = word < std::floor(rate * 0x1p32) || rate == 1.0 ? 0.0 : x[i] / (1.0 - rate);
  });
}

}  // namespace

void add_sequences(KernelTable& table) {
  table.add("pow", pow);
  table.add("cumsum", cumsum);
  table.add("dropout", dropout);
}

}  // namespace tracestep::reference
