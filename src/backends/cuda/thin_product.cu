#include "backends/cuda/thin_product.h"

#include "backends/cuda/predecessors.cuh"
#include "backends/cuda/row_packs.cuh"

namespace tracestep::cuda {
namespace {

constexpr std::int64_t kMostRows = 4;
constexpr int kWarps = 8;    // of a block
constexpr int kColumns = 2;  // of y that a warp computes: rows of weights
constexpr int kLine = 128;   // bytes of a line of the cache

struct ThinArgs {
  const void *x, *weights, *c;
  void* y;
  std::int64_t n, x_leading, leading;  // elements from row to row, of x and of the weights
  int k;
};

// Brings a row of `bytes` into the second-level cache, the lanes of a warp together.
__device__ void prefetch_row(const void* row, std::int64_t bytes, int lane) {
  const auto* first = static_cast<const std::byte*>(row);
  for (std::int64_t at = std::int64_t{lane} * kLine; at < bytes; at += kWarp * kLine) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(first + at));
  }
}

template <class T>
__device__ void multiply_packs(const RowPack<T>& w, const RowPack<T>& x, float& sum) {
  float a[kPack<T>], b[kPack<T>];
  w.floats(a);
  x.floats(b);
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) sum = fmaf(a[i], b[i], sum);
}

template <class T, class Y, int kRows>
__global__ void __launch_bounds__(kWarps* kWarp)
    thin_product_kernel(Predecessors before, ThinArgs a) {
  before.let_next_begin();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t first =
      (std::int64_t{blockIdx.x} * kWarps + static_cast<int>(threadIdx.x) / kWarp) * kColumns;
  const T* rows[kColumns];
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    rows[j] = static_cast<const T*>(a.weights) + ::min(first + j, a.n - 1) * a.leading;
  }
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    if (first + j < a.n) prefetch_row(rows[j], std::int64_t{a.k} * sizeof(T), lane);
  }
  before.wait();
  if (first >= a.n) return;
  float sums[kColumns][kRows] = {};
  const T* x = static_cast<const T*>(a.x);
#pragma unroll 4
  for (int k = lane * kPack<T>; k < a.k; k += kWarp * kPack<T>) {
    RowPack<T> weights[kColumns];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) weights[j] = RowPack<T>::load(rows[j] + k);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const auto entries = RowPack<T>::load(x + r * a.x_leading + k);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) multiply_packs(weights[j], entries, sums[j][r]);
    }
  }
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float sum = sums[j][r];
#pragma unroll
      for (int offset = kWarp / 2; offset > 0; offset /= 2) {
        sum += __shfl_xor_sync(~0u, sum, offset);
      }
      if (lane != 0 || first + j >= a.n) continue;
      const std::int64_t at = r * a.n + first + j;
      if (a.c != nullptr) sum += to_float(static_cast<const Y*>(a.c)[at]);
      static_cast<Y*>(a.y)[at] = from_float<Y>(sum);
    }
  }
}

template <class T, class Y>
cudaError_t launch_rows(std::int64_t rows, const ThinArgs& a, const LaunchStream& stream) {
  const LaunchSize size{.blocks = static_cast<unsigned>(ceil_div(a.n, kWarps * kColumns)),
                        .threads = kWarps * kWarp};
  switch (rows) {
    case 1: return launch_kernel(stream, size, thin_product_kernel<T, Y, 1>, a);
    case 2: return launch_kernel(stream, size, thin_product_kernel<T, Y, 2>, a);
    case 3: return launch_kernel(stream, size, thin_product_kernel<T, Y, 3>, a);
    default: return launch_kernel(stream, size, thin_product_kernel<T, Y, 4>, a);
  }
}

template <class T>
cudaError_t launch_typed(const GemmProblem& p, const ThinArgs& a, const LaunchStream& stream) {
  if (p.sum_dtype.value_or(p.dtype) == p.dtype) return launch_rows<T, T>(p.m, a, stream);
  return launch_rows<T, float>(p.m, a, stream);
}

}  // namespace

bool is_thin(const GemmProblem& p) {
  constexpr std::int64_t kWord = 16;
  const std::int64_t elements = kWord / static_cast<std::int64_t>(size_of(p.dtype));
  const DType sum = p.sum_dtype.value_or(p.dtype);
  return p.m <= kMostRows && p.batch == 1 && !p.a_transposed && p.b_transposed &&
         p.k % elements == 0 && p.a_leading % elements == 0 && p.b_leading % elements == 0 &&
         p.a_alignment >= kWord && p.b_alignment >= kWord && (sum == p.dtype || sum == DType::kF32);
}

cudaError_t multiply_thin(const GemmProblem& p, const void* x, const void* weights, const void* c,
                          void* y, const LaunchStream& stream) {
  const ThinArgs a{.x = x,
                   .weights = weights,
                   .c = c,
                   .y = y,
                   .n = p.n,
                   .x_leading = p.a_leading,
                   .leading = p.b_leading,
                   .k = static_cast<int>(p.k)};
  switch (p.dtype) {
    case DType::kBF16: return launch_typed<BF16>(p, a, stream);
    case DType::kF16: return launch_typed<F16>(p, a, stream);
    default: return launch_rows<float, float>(p.m, a, stream);
  }
}

}  // namespace tracestep::cuda
