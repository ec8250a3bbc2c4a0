#include "backends/cuda/products/padded_product.h"

#include "backends/cuda/predecessors.cuh"
#include "base/error.h"
#include "base/integers.h"

namespace tracestep::cuda {
namespace {

constexpr int kThreads = 256, kWarp = 32;
constexpr int kAhead = 8;  // words in flight per thread

// A matrix in memory, whose rows begin `leading` elements apart.
struct Rows {
  std::byte* data;
  std::int64_t rows, columns, leading;
};

// Copies words of `from` to `to`; zeros where `from` has none. A warp takes a segment of a row.
template <class Word>
__global__ void __launch_bounds__(kThreads)
    copy_rows_kernel(Predecessors before, Rows from, Rows to, std::uint32_t segments) {
  before.wait();
  const std::uint32_t task = blockIdx.x * (kThreads / kWarp) + threadIdx.x / kWarp;
  const std::uint32_t row = task / segments;
  if (row >= to.rows) return;
  const std::int64_t first =
      std::int64_t{task - row * segments} * (kWarp * kAhead) + threadIdx.x % kWarp;
  const Word* const source = reinterpret_cast<const Word*>(from.data) + row * from.leading;
  Word* const target = reinterpret_cast<Word*>(to.data) + row * to.leading;
  const std::int64_t held = row < from.rows ? from.columns : 0;
  Word words[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const std::int64_t column = first + i * kWarp;
    words[i] = column < held ? source[column] : Word{};
  }
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const std::int64_t column = first + i * kWarp;
    if (column < to.columns) target[column] = words[i];
  }
}

template <class Word>
cudaError_t copy_words(Rows from, Rows to, std::int64_t element_bytes, const LaunchStream& stream) {
  const std::int64_t elements = static_cast<std::int64_t>(sizeof(Word)) / element_bytes;
  for (Rows* x : {&from, &to}) x->columns /= elements, x->leading /= elements;
  const std::int64_t segments = ceil_div(to.columns, std::int64_t{kWarp * kAhead});
  const std::int64_t blocks = ceil_div(to.rows * segments, std::int64_t{kThreads / kWarp});
  return launch_kernel(stream, {static_cast<unsigned>(blocks), kThreads}, copy_rows_kernel<Word>,
                       from, to, static_cast<std::uint32_t>(segments));
}

// Copies `from` to `to` in the largest words that divide all their rows.
cudaError_t copy_rows(const Rows& from, const Rows& to, std::int64_t element_bytes,
                      const LaunchStream& stream) {
  const std::int64_t all = (from.columns | from.leading | to.columns | to.leading) * element_bytes |
                           static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(from.data) |
                                                     reinterpret_cast<std::uintptr_t>(to.data));
  if (all % 16 == 0) return copy_words<uint4>(from, to, element_bytes, stream);
  if (all % 8 == 0) return copy_words<std::uint64_t>(from, to, element_bytes, stream);
  if (all % 4 == 0) return copy_words<std::uint32_t>(from, to, element_bytes, stream);
  return copy_words<std::uint16_t>(from, to, element_bytes, stream);
}

PaddedProductPlan plan_of(const GemmProblem& p) {
  const auto bytes = [](DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); };
  return plan_padded_product({.m = p.m,
                              .n = p.n,
                              .k = p.k,
                              .batch = p.batch,
                              .a_transposed = p.a_transposed,
                              .b_transposed = p.b_transposed,
                              .element_bytes = bytes(p.dtype),
                              .y_bytes = bytes(p.sum_dtype.value_or(p.dtype))});
}

// Returns the problem with padded copies for operands that `plan` copies, and the others in place.
GemmProblem padded_problem(GemmProblem p, const PaddedProductPlan& plan) {
  constexpr std::int32_t kWorkspaceAlignment = 256;
  if (p.bias_alignment > 0) p = p.with_rows_of_bias();
  p.m = plan.m, p.n = plan.n, p.k = plan.k;
  if (plan.a > 0) p.a_leading = p.a_transposed ? p.m : p.k, p.a_alignment = kWorkspaceAlignment;
  if (plan.b > 0) p.b_leading = p.b_transposed ? p.k : p.n, p.b_alignment = kWorkspaceAlignment;
  if (plan.y > 0) p.y_alignment = kWorkspaceAlignment;
  return p;
}

std::byte* at(const void* workspace, std::int64_t offset) {
  return static_cast<std::byte*>(const_cast<void*>(workspace)) + offset;
}

// Returns the rows of an operand as it is stored.
Rows stored(const void* data, bool is_transposed, std::int64_t rows, std::int64_t columns,
            std::int64_t leading) {
  if (is_transposed) std::swap(rows, columns);
  return {static_cast<std::byte*>(const_cast<void*>(data)), rows, columns, leading};
}
Rows dense(Rows x) {
  x.leading = x.columns;
  return x;
}

void check(cudaError_t status) {
  if (status != cudaSuccess) [[unlikely]]
    throw DeviceError("cuda", "rows of a padded product", cudaGetErrorString(status));
}

}  // namespace

bool PaddedProduct::applies(const GemmProblem& p, std::int64_t workspace_bytes) {
  constexpr std::int32_t kAligned = 16;
  const PaddedProductPlan plan = plan_of(p);
  return plan.pays && plan.workspace_bytes <= workspace_bytes && !p.scaled.has_value() &&
         (plan.a > 0 || p.a_alignment >= kAligned) && (plan.b > 0 || p.b_alignment >= kAligned) &&
         (plan.y > 0 || p.y_alignment >= kAligned);
}

PaddedProduct::PaddedProduct(const GemmProblem& problem, const CudaStream& stream)
    : problem_(problem),
      plan_(plan_of(problem)),
      stream_(stream),
      product_(stream.gemm->prepare(padded_problem(problem, plan_))) {}

void PaddedProduct::multiply(const void* a, const void* b, const void* c, void* y,
                             void* workspace) const {
  const GemmProblem& p = problem_;
  const LaunchStream stream = stream_.launch_stream();
  const auto bytes = static_cast<std::int64_t>(size_of(p.dtype));
  const auto y_bytes = static_cast<std::int64_t>(size_of(p.sum_dtype.value_or(p.dtype)));
  if (plan_.a > 0) {
    const Rows from = stored(a, p.a_transposed, p.m, p.k, p.a_leading);
    a = at(workspace, plan_.a);
    check(copy_rows(from, dense(stored(a, p.a_transposed, plan_.m, plan_.k, 0)), bytes, stream));
  }
  if (plan_.b > 0) {
    const Rows from = stored(b, p.b_transposed, p.k, p.n, p.b_leading);
    b = at(workspace, plan_.b);
    check(copy_rows(from, dense(stored(b, p.b_transposed, plan_.k, plan_.n, 0)), bytes, stream));
  }
  const bool has_bias = p.bias_alignment > 0;
  if (plan_.y == 0) {
    if (has_bias) {
      check(repeat_row(c, y, p.m, p.n, y_bytes, stream));
      c = y;
    }
    return stream_.gemm->multiply(product_, a, b, y, workspace, c);
  }
  std::byte* const padded = at(workspace, plan_.y);
  const Rows result = dense(stored(y, false, p.m, p.n, 0));
  const Rows rows = dense(stored(padded, false, plan_.m, plan_.n, 0));
  if (c != nullptr) {
    const Rows from = stored(c, false, p.m, p.n, 0);
    check(copy_rows(has_bias ? from : dense(from), rows, y_bytes, stream));
  }
  stream_.gemm->multiply(product_, a, b, padded, workspace, c == nullptr ? nullptr : padded);
  check(copy_rows({rows.data, p.m, p.n, rows.leading}, result, y_bytes, stream));
}

void PaddedProduct::tune(const void* a, const void* b, void* y, void* workspace) const {
  if (!stream_.gemm->wants_tuning(product_)) return;
  stream_.gemm->tune(product_, plan_.a > 0 ? at(workspace, plan_.a) : a,
                     plan_.b > 0 ? at(workspace, plan_.b) : b,
                     plan_.y > 0 ? at(workspace, plan_.y) : y, workspace);
}

cudaError_t repeat_row(const void* row, void* y, std::int64_t rows, std::int64_t columns,
                       std::int64_t element_bytes, const LaunchStream& stream) {
  return copy_rows(stored(row, false, rows, columns, 0), dense(stored(y, false, rows, columns, 0)),
                   element_bytes, stream);
}

}  // namespace tracestep::cuda
