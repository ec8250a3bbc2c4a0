// Softmax over rows, as a textbook writes it: p_j = e^(s x_j - m) / Σ_k e^(s x_k - m), with m the
// largest visible s x_k. Rows are read whole before they are written: results may lie in place.
#include <cmath>
#include <limits>
#include <vector>

#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"

namespace tracestep::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void softmax(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const double scale = call.attrs.real("scale");
  const bool causal = call.attrs.flag("causal");
  const std::int64_t columns = x.shape.back();
  const View<double> in(x), out(call.outputs[0]);
  for_each_index(rows_of(x.shape), [&](const Dims& row) {
    std::int64_t visible = columns;
    if (causal) {
      const std::int64_t ahead =
          call.inputs.size() > 1 ? integer_at(call.inputs[1], {}) : columns - x.shape.back(1);
      visible = std::min(columns, row.back() + ahead + 1);
    }
    double top = -kInfinity;
    for (std::int64_t j = 0; j < visible; ++j) top = std::max(top, scale * in[appended(row, j)]);
    std::vector<double> terms(static_cast<std::size_t>(columns), 0.0);
    long double total = 0;
    for (std::int64_t j = 0; j < visible; ++j) {
      terms[static_cast<std::size_t>(j)] = std::exp(scale * in[appended(row, j)] - top);
      total += terms[static_cast<std::size_t>(j)];
    }
    for (std::int64_t j = 0; j < columns; ++j) {
      out[appended(row, j)] = static_cast<double>(terms[static_cast<std::size_t>(j)] / total);
    }
  });
}

// Computes dx: dp_j/dx_k = s p_j (δ_jk - p_k), so dx_k = s p_k (dy_k - Σ_j dy_j p_j).
void softmax_grad(const KernelCall& call) {
  const double scale = call.attrs.real("scale");
  const Shape& shape = call.inputs[0].shape;
  const View<double> dy(call.inputs[0]), p(call.inputs[1]), dx(call.outputs[0]);
  for_each_index(rows_of(shape), [&](const Dims& row) {
    long double inner = 0;
    for (std::int64_t j = 0; j < shape.back(); ++j) {
      inner += static_cast<long double>(dy[appended(row, j)]) * p[appended(row, j)];
    }
    for (std::int64_t k = 0; k < shape.back(); ++k) {
      const Dims i = appended(row, k);
      dx[i] = scale * p[i] * (dy[i] - static_cast<double>(inner));
    }
  });
}

void log_sum_exp(const KernelCall& call) {
  const Shape& shape = call.inputs[0].shape;
  const View<double> x(call.inputs[0]), y(call.outputs[0]);
  for_each_index(rows_of(shape), [&](const Dims& row) {
    double top = -kInfinity;
    for (std::int64_t j = 0; j < shape.back(); ++j) top = std::max(top, x[appended(row, j)]);
    long double total = 0;
    for (std::int64_t j = 0; j < shape.back(); ++j) total += std::exp(x[appended(row, j)] - top);
    y[row] = top + std::log(static_cast<double>(total));
  });
}

}  // namespace

void add_softmax(KernelTable& table) {
  table.add("softmax", softmax);
  table.add("softmax_grad", softmax_grad);
  table.add("log_sum_exp", log_sum_exp);
}

}  // namespace tracestep::reference
