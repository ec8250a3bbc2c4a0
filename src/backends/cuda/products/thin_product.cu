#include "backends/cuda/products/thin_product.h"

#include "backends/cuda/predecessors.cuh"
#include "backends/cuda/rows/row_packs.cuh"

namespace tracestep::cuda {
namespace {

constexpr std::int64_t kMostRows = 4;
constexpr int kWarps = 8;    // warps of a block
constexpr int kColumns = 2;  // columns of y that a warp computes: rows of weights
constexpr int kAhead = 4;    // words of each row that a lane asks for at a time
constexpr int kLine = 128;   // bytes of a line of the cache

struct ThinArgs {
  const void *x, *weights, *c;
  void* y;
  std::int64_t n;
  std::int64_t x_leading, leading, c_leading;  // elements from row to row: x, weights, c
  int k;
  int shares;  // warps that share the rows of two columns, 1 to kWarps
};

// Prefetches to the L2 cache the first bytes of a row, which the lanes of a warp read first.
__device__ void prefetch_row(const std::byte* first, std::int64_t bytes, int lane) {
  constexpr int kFirst = kAhead * kWarp * 16;
  for (int at = lane * kLine; at < kFirst && at < bytes; at += kWarp * kLine) {
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

// Adds to `sums` the products of a warp's share of K, [begin, end): the warp reads adjacent words
// in each round.
template <class T, int kRows>
__device__ void multiply_share(const ThinArgs& a, const T* const (&rows)[kColumns], int begin,
                               int end, int lane, float (&sums)[kColumns][kRows]) {
  const T* x = static_cast<const T*>(a.x);
#pragma unroll kAhead
  for (int k = begin + lane * kPack<T>; k < end; k += kWarp * kPack<T>) {
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
}

template <class T, class Y, int kRows>
__global__ void __launch_bounds__(kWarps* kWarp)
    thin_product_kernel(Predecessors before, ThinArgs a) {
  before.let_next_begin();
  __shared__ float shared[kWarps][kColumns * kRows];
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const int share = warp % a.shares, pairs = kWarps / a.shares;  // pairs of columns in this block
  const std::int64_t first = (std::int64_t{blockIdx.x} * pairs + warp / a.shares) * kColumns;
  constexpr int kRound = kWarp * kPack<T>;
  const int rounds = (a.k + kRound - 1) / kRound;
  const int begin = rounds * share / a.shares * kRound;
  const int end = ::min(rounds * (share + 1) / a.shares * kRound, a.k);
  const T* rows[kColumns];
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    rows[j] = static_cast<const T*>(a.weights) + ::min(first + j, a.n - 1) * a.leading;
    const auto bytes = static_cast<std::int64_t>(end - begin) * sizeof(T);
    prefetch_row(reinterpret_cast<const std::byte*>(rows[j] + begin), bytes, lane);
  }
  before.wait();
  float sums[kColumns][kRows] = {};
  multiply_share(a, rows, begin, end, lane, sums);
#pragma unroll
  for (int i = 0; i < kColumns * kRows; ++i) {
    float sum = (&sums[0][0])[i];
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    if (lane == 0) shared[warp][i] = sum;
  }
  __syncthreads();
  // Each result is made by one thread, which adds up the shares in order.
  const int results = pairs * kColumns * kRows;
  if (static_cast<int>(threadIdx.x) >= results) return;
  const int i = static_cast<int>(threadIdx.x) % (kColumns * kRows);
  const int pair = static_cast<int>(threadIdx.x) / (kColumns * kRows);
  const std::int64_t column = (std::int64_t{blockIdx.x} * pairs + pair) * kColumns + i / kRows;
  if (column >= a.n) return;
  float sum = 0.0f;
  for (int s = 0; s < a.shares; ++s) sum += shared[pair * a.shares + s][i];
  const std::int64_t row = i % kRows;
  if (a.c != nullptr) sum += to_float(static_cast<const Y*>(a.c)[row * a.c_leading + column]);
  static_cast<Y*>(a.y)[row * a.n + column] = from_float<Y>(sum);
}

// Returns how many warps share each row of weights: more if rows are few, to keep memory busy.
template <class T>
int shares_of(const ThinArgs& a) {
  constexpr std::int64_t kEnoughWarps = 6000;
  int shares = 1;
  while (shares < kWarps && a.n / kColumns * shares < kEnoughWarps &&
         a.k >= 2 * shares * kWarp * kPack<T>) {
    shares *= 2;
  }
  return shares;
}

template <class T, class Y>
cudaError_t launch_rows(std::int64_t rows, ThinArgs a, const LaunchStream& stream) {
  a.shares = shares_of<T>(a);
  const std::int64_t columns = kWarps / a.shares * kColumns;  // columns of y that a block computes
  const LaunchSize size{.blocks = static_cast<unsigned>(ceil_div(a.n, columns)),
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
                   .c_leading = p.bias_alignment > 0 ? 0 : p.n,
                   .k = static_cast<int>(p.k),
                   .shares = 1};
  switch (p.dtype) {
    case DType::kBF16: return launch_typed<BF16>(p, a, stream);
    case DType::kF16: return launch_typed<F16>(p, a, stream);
    default: return launch_rows<float, float>(p.m, a, stream);
  }
}

}  // namespace tracestep::cuda
