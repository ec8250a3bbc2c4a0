// The matrix product, by its definition: y[m,n] = Σ_k a[m,k] b[k,n] for every batch index.
#include <algorithm>
#include <array>

#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"

namespace tracestep::reference {
namespace {

// The elements of a tensor along one axis, with the indices of its other axes fixed.
struct Line {
  const double* first;
  std::int64_t stride;
  long double operator[](std::int64_t i) const { return first[i * stride]; }
};

// Returns row `at` (is_row) or column `at` of the matrix of x that the indices `batch` pick.
Line line_of(const TensorRef& x, const Dims& batch, std::int64_t at, bool is_row) {
  const View<double> view(x);
  const Dims start = appended(appended(batch, is_row ? at : 0), is_row ? 0 : at);
  return {&view[start], x.strides[x.shape.rank() - (is_row ? 1 : 2)]};
}

// Returns a row's inner products with four columns, in the order of k; their additions overlap.
std::array<long double, 4> four_sums(const Line& row, const std::array<Line, 4>& columns,
                                     std::int64_t depth) {
  const auto& [c0, c1, c2, c3] = columns;
  long double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
  for (std::int64_t k = 0; k < depth; ++k) {
    const long double x = row[k];
    s0 += x * c0[k];
    s1 += x * c1[k];
    s2 += x * c2[k];
    s3 += x * c3[k];
  }
  return {s0, s1, s2, s3};
}

void matmul(const KernelCall& call) {
  const TensorRef &a = call.inputs[0], &b = call.inputs[1], &y = call.outputs[0];
  const bool transpose_a = call.attrs.flag("transpose_a");
  const bool transpose_b = call.attrs.flag("transpose_b");
  const std::int64_t depth = transpose_a ? a.shape.back(1) : a.shape.back(0);
  const std::int64_t width = y.shape.back(0);
  const View<double> out(y);
  if (width == 0) return;
  for_each_index(prefix(y.shape, y.shape.rank() - 1), [&](const Dims& i) {
    const Dims batch = prefix(i, i.rank() - 1);
    for (std::int64_t n = 0; n < width; n += 4) {
      std::array<long double, 4> sums = {};
      if (depth > 0) {  // an empty operand has no element to begin a line at
        std::array<Line, 4> columns;
        for (std::int64_t c = 0; c < 4; ++c) {
          columns[c] = line_of(b, batch, std::min(n + c, width - 1), transpose_b);
        }
        sums = four_sums(line_of(a, batch, i.back(0), !transpose_a), columns, depth);
      }
      for (std::int64_t c = 0; c < std::min<std::int64_t>(4, width - n); ++c) {
        out[appended(i, n + c)] = static_cast<double>(sums[c]);
      }
    }
  });
}

}  // namespace

void add_matmul(KernelTable& table) {
  table.add("matmul", matmul);
}

}  // namespace tracestep::reference
