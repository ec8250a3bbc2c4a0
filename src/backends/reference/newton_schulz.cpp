// Newton and Schulz's iteration by its definition: divides a matrix X by its norm, then replaces X
// five times by a·X + b·(X·Xᵀ)·X + c·(X·Xᵀ)²·X, computed term by term.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"

namespace tracestep::reference {
namespace {

// A dense matrix, its rows one after the other.
struct Matrix {
  std::int64_t rows, columns;
  std::vector<double> values = std::vector<double>(static_cast<std::size_t>(rows * columns));

  double& at(std::int64_t i, std::int64_t j) {
    return values[static_cast<std::size_t>(i * columns + j)];
  }
  double at(std::int64_t i, std::int64_t j) const {
    return values[static_cast<std::size_t>(i * columns + j)];
  }
};

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix out{a.rows, b.columns};
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < b.columns; ++j) {
      long double sum = 0;
      for (std::int64_t k = 0; k < a.columns; ++k)
        sum += static_cast<long double>(a.at(i, k)) * b.at(k, j);
      out.at(i, j) = static_cast<double>(sum);
    }
  }
  return out;
}

Matrix transposed(const Matrix& x) {
  Matrix out{x.columns, x.rows};
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < x.columns; ++j) out.at(j, i) = x.at(i, j);
  }
  return out;
}

double norm_of(const Matrix& x) {
  long double sum = 0;
  for (const double value : x.values) sum += static_cast<long double>(value) * value;
  return static_cast<double>(std::sqrt(sum));
}

// Makes the matrix nearly orthogonal by five steps, in place.
void iterate(Matrix& x) {
  const double norm = std::max(norm_of(x), 1e-7);
  for (double& value : x.values) value /= norm;
  for (int step = 0; step < 5; ++step) {
    const Matrix cubic = product(product(x, transposed(x)), x);
    const Matrix quintic = product(product(x, transposed(x)), cubic);
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      x.values[i] = 3.4445 * x.values[i] - 4.7750 * cubic.values[i] + 2.0315 * quintic.values[i];
    }
  }
}

void newton_schulz(const KernelCall& call) {
  const View<double> in(call.inputs[0]), out(call.outputs[0]);
  const Shape& shape = call.inputs[0].shape;
  const int rank = shape.rank();
  const Shape matrix{shape.back(1), shape.back(0)};
  for (std::int64_t m = 0; m < (rank == 2 ? 1 : shape[0]); ++m) {
    Matrix x{matrix[0], matrix[1]};
    const auto place = [&](const Dims& i) { return rank == 2 ? i : Dims{m, i[0], i[1]}; };
    for_each_index(matrix, [&](const Dims& i) { x.at(i[0], i[1]) = in[place(i)]; });
    iterate(x);
    for_each_index(matrix, [&](const Dims& i) { out[place(i)] = x.at(i[0], i[1]); });
  }
}

}  // namespace

void add_newton_schulz(KernelTable& table) {
  table.add("newton_schulz", newton_schulz);
}

}  // namespace tracestep::reference
