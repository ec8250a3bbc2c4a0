// The matrix product, by its definition: y[m,n] = Σ_k a[m,k] b[k,n] for every batch index.
#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"

namespace tracestep::reference {
namespace {

// The elements of one axis, from an index of the others on.
struct Line {
  const double* first;
  std::int64_t stride;
  long double operator[](std::int64_t i) const { return first[i * stride]; }
};

// Row `at` of a matrix, or its column; `batch` says which matrix.
Line line_of(const TensorRef& x, const Dims& batch, std::int64_t at, bool is_row) {
  const View<double> view(x);
  const Dims start = appended(appended(batch, is_row ? at : 0), is_row ? 0 : at);
  return {&view[start], x.strides[x.shape.rank() - (is_row ? 1 : 2)]};
}

void matmul(const KernelCall& call) {
  const TensorRef &a = call.inputs[0], &b = call.inputs[1], &y = call.outputs[0];
  const bool transpose_a = call.attrs.flag("transpose_a");
  const bool transpose_b = call.attrs.flag("transpose_b");
  const std::int64_t depth = transpose_a ? a.shape.back(1) : a.shape.back(0);
  const View<double> out(y);
  for_each_index(y.shape, [&](const Dims& i) {
    const Dims batch = prefix(i, i.rank() - 2);
    long double total = 0;
    if (depth > 0) {  // an empty operand has no element to begin a line at
      const Line row = line_of(a, batch, i.back(1), !transpose_a);
      const Line column = line_of(b, batch, i.back(0), transpose_b);
      for (std::int64_t k = 0; k < depth; ++k) total += row[k] * column[k];
    }
    out[i] = static_cast<double>(total);
  });
}

}  // namespace

void add_matmul(KernelTable& table) {
  table.add("matmul", matmul);
}

}  // namespace tracestep::reference
