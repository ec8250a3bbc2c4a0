// y_i = w_i (x_i - m) / r + b_i with m = mean(x) and r = √(mean((x - m)²) + eps).
//
// By hand, with n the width and z_i = (x_i - m)/r: dm/dx_k = 1/n and dr/dx_k = z_k/n, hence
//   dx_k = (w_k dy_k - 1/n Σ w_i dy_i - z_k/n Σ w_i dy_i z_i) / r,  dw_k = Σ_rows dy_k z_k,
//   db_k = Σ_rows dy_k.
#include <cmath>

#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"

namespace tracestep::reference {
namespace {

void layer_norm(const KernelCall& call) {
  const Shape& shape = call.inputs[0].shape;
  const auto width = static_cast<long double>(shape.back());
  const View<double> x(call.inputs[0]), w(call.inputs[1]);
  const View<double> y(call.outputs[0]), means(call.outputs[1]), rstds(call.outputs[2]);
  const bool has_bias = call.inputs.size() > 2;
  const View<double> b(call.inputs[has_bias ? 2 : 1]);
  for_each_index(rows_of(shape), [&](const Dims& row) {
    long double total = 0, squares = 0;
    for (std::int64_t i = 0; i < shape.back(); ++i) total += x[appended(row, i)];
    const auto mean = static_cast<double>(total / width);
    for (std::int64_t i = 0; i < shape.back(); ++i) {
      const long double apart = x[appended(row, i)] - mean;
      squares += apart * apart;
    }
    const double r = std::sqrt(static_cast<double>(squares / width) + call.attrs.real("eps"));
    for (std::int64_t i = 0; y && i < shape.back(); ++i) {
      y[appended(row, i)] = w[{i}] * (x[appended(row, i)] - mean) / r + (has_bias ? b[{i}] : 0.0);
    }
    if (means) means[row] = mean;
    if (rstds) rstds[row] = 1 / r;
  });
}

// Computes dw and db first: dx may lie in the storage of dy.
void layer_norm_grad(const KernelCall& call) {
  const Shape& shape = call.inputs[1].shape;
  const std::int64_t width = shape.back();
  const View<double> dy(call.inputs[0]), x(call.inputs[1]), w(call.inputs[2]);
  const View<double> mean(call.inputs[3]), rstd(call.inputs[4]);
  const View<double> dx(call.outputs[0]), dw(call.outputs[1]), db(call.outputs[2]);
  const auto z = [&](const Dims& row, std::int64_t i) {
    return (x[appended(row, i)] - mean[row]) * rstd[row];
  };
  for (std::int64_t k = 0; k < width; ++k) {
    long double weighted = 0, total = 0;
    for_each_index(rows_of(shape), [&](const Dims& row) {
      weighted += static_cast<long double>(dy[appended(row, k)]) * z(row, k);
      total += dy[appended(row, k)];
    });
    if (dw) dw[{k}] = static_cast<double>(weighted);
    if (db) db[{k}] = static_cast<double>(total);
  }
  if (!dx) return;
  for_each_index(rows_of(shape), [&](const Dims& row) {
    long double sum = 0, along = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      const long double g = static_cast<long double>(w[{i}]) * dy[appended(row, i)];
      sum += g;
      along += g * z(row, i);
    }
    const auto n = static_cast<double>(width);
    const double mean_of_all = static_cast<double>(sum) / n, slope = static_cast<double>(along) / n;
    for (std::int64_t k = 0; k < width; ++k) {
      const Dims i = appended(row, k);
      dx[i] = (w[{k}] * dy[i] - mean_of_all - z(row, k) * slope) * rstd[row];
    }
  });
}

}  // namespace

void add_layer_norm(KernelTable& table) {
  table.add("layer_norm", layer_norm);
  table.add("layer_norm_grad", layer_norm_grad);
}

}  // namespace tracestep::reference
