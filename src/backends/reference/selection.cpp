// select and cast: the elementwise ops whose operands have different dtypes.
#include <limits>
#include <type_traits>

#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"

namespace tracestep::reference {
namespace {

void select(const KernelCall& call) {
  const View<std::uint8_t> condition(call.inputs[0]);
  with_type(call.outputs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const View<T> a(call.inputs[1]), b(call.inputs[2]), y(call.outputs[0]);
    for_each_index(call.outputs[0].shape,
                   [&](const Dims& i) { y[i] = condition[i] != 0 ? a[i] : b[i]; });
  });
}

// Returns x rounded towards zero and clamped to To's range; NaN gives 0 (undefined in plain C++).
template <class To>
To from_real(double x) {
  using Limits = std::numeric_limits<To>;
  if (!(x == x)) return 0;
  if (x <= static_cast<double>(Limits::min())) return Limits::min();
  if (x >= static_cast<double>(Limits::max())) return Limits::max();
  return static_cast<To>(x);
}

template <class To, class From>
To converted(From x, DType to) {
  if (to == DType::kBool) return static_cast<To>(x != 0);
  if constexpr (std::is_same_v<From, double> && !std::is_same_v<To, double>) {
    return from_real<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

void cast(const KernelCall& call) {
  const TensorRef& from = call.inputs[0];
  const TensorRef& to = call.outputs[0];
  with_type(from.dtype, [&](auto from_zero) {
    with_type(to.dtype, [&](auto to_zero) {
      using From = decltype(from_zero);
      using To = decltype(to_zero);
      const View<From> x(from);
      const View<To> y(to);
      for_each_index(to.shape, [&](const Dims& i) { y[i] = converted<To>(x[i], to.dtype); });
    });
  });
}

}  // namespace

void add_selection(KernelTable& table) {
  table.add("select", select);
  table.add("cast", cast);
  // Everything is float64 here, to which nothing is rounded.
  table.add("stochastic_round", cast);
}

}  // namespace tracestep::reference
