// Gathers and their transposes; an index outside the table is a mistake in the data.
#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"

namespace tracestep::reference {
namespace {

void zero_fill(const TensorRef& y) {
  with_type(y.dtype, [&](auto zero) {
    const View<decltype(zero)> out(y);
    for_each_index(y.shape, [&](const Dims& i) { out[i] = zero; });
  });
}

// Sets y[i, c] = table[indices[i], c].
void gather(const KernelCall& call) {
  const TensorRef& table = call.inputs[0];
  const TensorRef& indices = call.inputs[1];
  with_type(table.dtype, [&](auto zero) {
    const View<decltype(zero)> from(table), y(call.outputs[0]);
    for_each_index(indices.shape, [&](const Dims& i) {
      const std::int64_t row = checked_index("gather", integer_at(indices, i), i, table.shape[0]);
      for (std::int64_t c = 0; c < table.shape[1]; ++c) y[appended(i, c)] = from[{row, c}];
    });
  });
}

// Sets y to zero, then adds x[i, c] to y[indices[i], c] for all i and c.
void scatter_add(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& indices = call.inputs[1];
  const TensorRef& y = call.outputs[0];
  zero_fill(y);
  with_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const View<T> from(x), to(y);
    for_each_index(indices.shape, [&](const Dims& i) {
      const std::int64_t row = checked_index("scatter_add", integer_at(indices, i), i, y.shape[0]);
      for (std::int64_t c = 0; c < y.shape[1]; ++c) {
        T& sum = to[{row, c}];
        sum = static_cast<T>(sum + from[appended(i, c)]);
      }
    });
  });
}

// Sets y = base, then adds x[i, c] to y[indices[i], c]; in float64 the order does not matter.
void scatter_add_to(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &indices = call.inputs[1], &y = call.outputs[0];
  with_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const View<T> from(x), to(y);
    with_type(call.inputs[2].dtype, [&](auto other) {
      const View<decltype(other)> base(call.inputs[2]);
      for_each_index(y.shape, [&](const Dims& i) { to[i] = static_cast<T>(base[i]); });
    });
    for_each_index(indices.shape, [&](const Dims& i) {
      const std::int64_t row =
          checked_index("scatter_add_to", integer_at(indices, i), i, y.shape[0]);
      for (std::int64_t c = 0; c < y.shape[1]; ++c) {
        T& sum = to[{row, c}];
        sum = static_cast<T>(sum + from[appended(i, c)]);
      }
    });
  });
}

// Sets y[i] = x[i, indices[i]].
void take_along(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& indices = call.inputs[1];
  with_type(x.dtype, [&](auto zero) {
    const View<decltype(zero)> from(x), y(call.outputs[0]);
    for_each_index(indices.shape, [&](const Dims& i) {
      const std::int64_t at =
          checked_index("take_along", integer_at(indices, i), i, x.shape.back());
      y[i] = from[appended(i, at)];
    });
  });
}

// Sets y[i, indices[i]] = x[i], and all other elements of y to zero.
void put_along(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& indices = call.inputs[1];
  const TensorRef& y = call.outputs[0];
  zero_fill(y);
  with_type(x.dtype, [&](auto zero) {
    const View<decltype(zero)> from(x), to(y);
    for_each_index(x.shape, [&](const Dims& i) {
      const std::int64_t at = checked_index("put_along", integer_at(indices, i), i, y.shape.back());
      to[appended(i, at)] = from[i];
    });
  });
}

// Writes the index of a row's first largest number; -1 as the second result unless all are finite.
void greedy_token(const KernelCall& call) {
  const View<double> x(call.inputs[0]);
  const View<std::int64_t> token(call.outputs[0]), checked(call.outputs[1]);
  for_each_index(call.outputs[0].shape, [&](const Dims& i) {
    std::int64_t best = 0;
    double top = -std::numeric_limits<double>::infinity();
    bool is_finite = true;
    for (std::int64_t j = 0; j < call.inputs[0].shape.back(); ++j) {
      const double value = x[appended(i, j)];
      is_finite = is_finite && std::isfinite(value);
      if (value > top) best = j;
      if (value > top) top = value;
    }
    if (call.outputs[0].data != nullptr) token[i] = best;  // else nobody reads it
    if (call.outputs[1].data != nullptr) checked[i] = is_finite ? best : -1;
  });
}

}  // namespace

void add_gathers(KernelTable& table) {
  table.add("gather", gather);
  table.add("scatter_add", scatter_add);
  table.add("scatter_add_to", scatter_add_to);
  table.add("take_along", take_along);
  table.add("put_along", put_along);
  table.add("greedy_token", greedy_token);
}

}  // namespace tracestep::reference
