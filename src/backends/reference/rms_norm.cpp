// y_i = w_i x_i / r with r = √(mean(x²) + eps).
//
// By hand, with n the width:  dr/dx_k = x_k / (n r), hence
//   dx_k = w_k dy_k / r - x_k / (n r³) Σ_i w_i dy_i x_i     and     dw_k = Σ_rows dy_k x_k / r.
#include <cmath>

#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"

namespace tracestep::reference {
namespace {

void rms_norm(const KernelCall& call) {
  const Shape& shape = call.inputs[0].shape;
  const double eps = call.attrs.real("eps");
  const View<double> x(call.inputs[0]), w(call.inputs[1]);
  const View<double> y(call.outputs[0]), rstd(call.outputs[1]);
  for_each_index(rows_of(shape), [&](const Dims& row) {
    long double squares = 0;
    for (std::int64_t i = 0; i < shape.back(); ++i) {
      squares += static_cast<long double>(x[appended(row, i)]) * x[appended(row, i)];
    }
    const double mean = static_cast<double>(squares) / static_cast<double>(shape.back());
    const double r = std::sqrt(mean + eps);
    for (std::int64_t i = 0; y && i < shape.back(); ++i) {
      y[appended(row, i)] = w[{i}] * x[appended(row, i)] / r;
    }
    if (rstd) rstd[row] = 1 / r;
  });
}

// Computes dw first: dx may lie in the storage of dy.
void rms_norm_grad(const KernelCall& call) {
  const Shape& shape = call.inputs[1].shape;
  const std::int64_t width = shape.back();
  const View<double> dy(call.inputs[0]), x(call.inputs[1]), w(call.inputs[2]), rstd(call.inputs[3]);
  const View<double> dx(call.outputs[0]), dw(call.outputs[1]);
  for (std::int64_t k = 0; dw && k < width; ++k) {
    long double total = 0;
    for_each_index(rows_of(shape), [&](const Dims& row) {
      total += static_cast<long double>(dy[appended(row, k)]) * x[appended(row, k)] * rstd[row];
    });
    dw[{k}] = static_cast<double>(total);
  }
  if (!dx) return;
  for_each_index(rows_of(shape), [&](const Dims& row) {
    const double one_over_r = rstd[row];
    long double dot = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      dot += static_cast<long double>(w[{i}]) * dy[appended(row, i)] * x[appended(row, i)];
    }
    const double factor =
        static_cast<double>(dot) * std::pow(one_over_r, 3) / static_cast<double>(width);
    for (std::int64_t k = 0; k < width; ++k) {
      const Dims i = appended(row, k);
      dx[i] = w[{k}] * dy[i] * one_over_r - x[i] * factor;
    }
  });
}

}  // namespace

void add_rms_norm(KernelTable& table) {
  table.add("rms_norm", rms_norm);
  table.add("rms_norm_grad", rms_norm_grad);
}

}  // namespace tracestep::reference
