// matmul: operands as the record accepts them, handed to the library as they lie.
#include <bit>

#include "backends/cuda/gemm.h"
#include "backends/cuda/kernels.h"
#include "ops/cuda_plans.h"

namespace tracestep::cuda {
namespace {

struct Matrix {
  std::int64_t leading;  // elements from row to row as stored
  std::int64_t batch;    // elements from matrix to matrix
  bool by_columns;       // the stored rows are the operand's columns
  std::int32_t alignment;
};

// The largest power of two, 256 at most, that divides the address of every row's and every
// matrix's start.
std::int32_t alignment_of(const TensorRef& x, std::int64_t leading, std::int64_t batch) {
  const auto bytes = static_cast<std::uint64_t>(size_of(x.dtype));
  const std::uint64_t all = reinterpret_cast<std::uintptr_t>(x.data) |
                            static_cast<std::uint64_t>(leading) * bytes |
                            static_cast<std::uint64_t>(batch) * bytes | 256;
  return std::int32_t{1} << std::countr_zero(all);
}

// The batch dimensions collapse to one stride (the op record takes nothing else).
std::int64_t batch_stride(const TensorRef& x) {
  for (int i = x.shape.rank() - 3; i >= 0; --i) {
    if (x.shape[i] != 1) return x.strides[i];
  }
  return 0;
}

// With one row (column) the stride between rows (columns) may be anything, yet the library wants
// one that is at least as long as a row.
Matrix as_matrix(const TensorRef& x) {
  const std::int64_t rows = x.shape.back(1), columns = x.shape.back(0);
  const std::int64_t row_stride = x.strides.back(1), column_stride = x.strides.back(0);
  const bool by_rows = (columns == 1 || column_stride == 1) && (rows == 1 || row_stride >= columns);
  Matrix out{};
  out.by_columns = !by_rows;
  if (by_rows) {
    out.leading = rows == 1 ? columns : row_stride;
  } else {
    out.leading = columns == 1 ? rows : column_stride;
  }
  out.batch = batch_stride(x);
  out.alignment = alignment_of(x, out.leading, out.batch);
  return out;
}

void matmul_kernel(const KernelCall& call) {
  const TensorRef &a = call.inputs[0], &b = call.inputs[1], &y = call.outputs[0];
  if (y.count() == 0) return;
  const bool ta = call.node.attrs.flag("transpose_a"), tb = call.node.attrs.flag("transpose_b");
  const CudaStream& stream = stream_of(call);
  GemmProblem p;
  p.m = y.shape.back(1);
  p.n = y.shape.back(0);
  p.k = ta ? a.shape.back(1) : a.shape.back(0);
  p.batch = y.count() / (p.m * p.n);
  p.dtype = y.dtype;
  if (p.k == 0) {
    const std::size_t bytes = static_cast<std::size_t>(y.count()) * size_of(y.dtype);
    const cudaError_t status = cudaMemsetAsync(y.data, 0, bytes, stream.handle);
    if (status != cudaSuccess) fail_launch(call, status);
    return;
  }
  const Matrix ma = as_matrix(a), mb = as_matrix(b);
  p.a_leading = ma.leading;
  p.a_batch = ma.batch;
  p.a_transposed = ta != ma.by_columns;
  p.a_alignment = ma.alignment;
  p.b_leading = mb.leading;
  p.b_batch = mb.batch;
  p.b_transposed = tb != mb.by_columns;
  p.b_alignment = mb.alignment;
  p.y_alignment = alignment_of(y, p.n, p.batch > 1 ? p.m * p.n : 0);
  stream.gemm->multiply(p, a.data, b.data, y.data, call.workspace.data());
}

}  // namespace

void add_matmul_kernels(KernelTable& table) {
  table.add("matmul", matmul_kernel);
}

}  // namespace tracestep::cuda
