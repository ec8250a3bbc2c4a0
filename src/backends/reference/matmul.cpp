// The matrix product, by its definition: y[m,n] = Σ_k a[m,k] b[k,n] for every batch index.
#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"

namespace tracestep::reference {
namespace {

void matmul(const KernelCall& call) {
  const TensorRef& y = call.outputs[0];
  const bool transpose_a = call.node.attrs.flag("transpose_a");
  const bool transpose_b = call.node.attrs.flag("transpose_b");
  const Shape& a_shape = call.inputs[0].shape;
  const std::int64_t depth = transpose_a ? a_shape.back(1) : a_shape.back(0);
  const View<double> a(call.inputs[0]), b(call.inputs[1]), out(y);
  for_each_index(y.shape, [&](const Dims& i) {
    const std::int64_t m = i.back(1), n = i.back(0);
    const Dims batch = prefix(i, i.rank() - 2);
    const auto element = [&](std::int64_t row, std::int64_t col, bool transposed) {
      return transposed ? appended(appended(batch, col), row) : appended(appended(batch, row), col);
    };
    long double total = 0;
    for (std::int64_t k = 0; k < depth; ++k) {
      total +=
          static_cast<long double>(a[element(m, k, transpose_a)]) * b[element(k, n, transpose_b)];
    }
    out[i] = static_cast<double>(total);
  });
}

}  // namespace

void add_matmul(KernelTable& table) {
  table.add("matmul", matmul);
}

}  // namespace tracestep::reference
