// Reducing dense stretches of memory, and the second stage of reductions whose first one left
// partial results in the workspace.
#pragma once

#include "backends/cuda/maps/operand.cuh"
#include "backends/cuda/rows/rows.cuh"

namespace tracestep::cuda {

// Functions of one element: Same, Squared for use before a sum, and Root and Scaled for the result.
struct Same {
  __device__ float operator()(float x) const { return x; }
};
struct Squared {
  __device__ float operator()(float x) const { return x * x; }
};
struct Root {
  __device__ float operator()(float x) const { return sqrtf(x); }
};
struct Scaled {
  float factor;
  __device__ float operator()(float x) const { return x * factor; }
};

// Reduces a lane's share of map(x[0]), ..., map(x[count - 1]). Long sums are sums of partial sums,
// to keep rounding errors small; map(neutral) must be neutral. The elements of a lane and their
// order are the same for all T with the same pack size.
template <class F, class Map, int kPackSize = 0, class T>
__device__ inline float reduce_dense(const T* x, std::int64_t count, int lane, int lanes) {
  constexpr int kSize = kPackSize > 0 ? kPackSize : kPack<T>;
  constexpr int kAhead = 4;  // packs in flight
  constexpr int kStepsPerSum = 16;
  const std::int64_t step = std::int64_t{lanes} * kSize;
  std::int64_t begin = std::int64_t{lane} * kSize - pack_shift<T, kSize>(x);
  float total = F::kNeutral;
  while (begin < count) {
    float sum = F::kNeutral;
    for (int i = 0; i < kStepsPerSum && begin < count; ++i, begin += kAhead * step) {
      Pack<T, kSize> packs[kAhead];
      load_row(x, Packs<std::int64_t>{begin, step}, count, count, true, from_float<T>(F::kNeutral),
               packs);
      float values[kAhead * kSize];
#pragma unroll
      for (int j = 0; j < kAhead * kSize; ++j) {
        values[j] = Map()(to_float(packs[j / kSize].at[j % kSize]));
      }
      sum = F()(sum, fold_in_pairs<F, kAhead * kSize>(values));
    }
    total = F()(total, sum);
  }
  return total;
}

// The most threads of the one block of sum_partials_kernel(), which sets y = finish(Σ partials).
inline constexpr unsigned kFinishThreads = 1024;

template <class Finish>
__global__ void __launch_bounds__(kFinishThreads)
    sum_partials_kernel(Predecessors before, const float* partials, std::int64_t count, float* y,
                        Finish finish) {
  before.wait();
  __shared__ float scratch[kWarp];
  const int lanes = static_cast<int>(blockDim.x);
  const float own = reduce_dense<Plus, Same>(partials, count, static_cast<int>(threadIdx.x), lanes);
  const float total = lanes_reduce<Plus>(own, lanes, scratch);
  if (threadIdx.x == 0) *y = finish(total);
}

template <class Finish>
void sum_partials(const KernelCall& call, const float* partials, std::int64_t count, float* y,
                  const Finish& finish) {
  const RowPlan plan = plan_rows(packs_of_rows<float>(partials, count), 1, kFinishThreads, kWarp);
  launch(call, {.blocks = 1, .threads = plan.threads()}, sum_partials_kernel<Finish>, partials,
         count, y, finish);
}

// Threads of a block of combine_partials_kernel(), which sets y[i] to partials[0, i] … combined:
// `columns` (a power of two) of them take one i each; the others share that i's parts with them.
inline constexpr int kCombineThreads = 256;

template <class F>
__global__ void __launch_bounds__(kCombineThreads)
    combine_partials_kernel(Predecessors before, const float* partials, std::int64_t parts,
                            std::int64_t results, int columns, AnyFloatResult y) {
  before.wait();
  __shared__ float shared[kCombineThreads];
  const int thread = static_cast<int>(threadIdx.x), step = kCombineThreads / columns;
  const std::int64_t column = std::int64_t{blockIdx.x} * columns + thread % columns;
  float total = F::kNeutral;
  if (column < results) {
#pragma unroll 8
    for (std::int64_t part = thread / columns; part < parts; part += step) {
      total = F()(total, partials[part * results + column]);
    }
  }
  for (int half = kCombineThreads / 2; half >= columns; half /= 2) {
    shared[thread] = total;
    __syncthreads();  // all have written
    if (thread < half) total = F()(total, shared[thread + half]);
    __syncthreads();  // all have read
  }
  if (thread < columns && column < results) y.put(column, total);
}

template <class F>
void combine_partials(const KernelCall& call, const float* partials, std::int64_t parts,
                      const TensorRef& y) {
  constexpr std::int64_t kMostColumns = 8;  // 32 bytes: what a read from memory moves at least
  const std::int64_t results = y.count();
  if (results == 0) return;
  const auto columns =
      static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(std::min(results, kMostColumns))));
  const auto blocks = static_cast<unsigned>(ceil_div(results, columns));
  launch(call, {.blocks = blocks, .threads = kCombineThreads}, combine_partials_kernel<F>, partials,
         parts, results, columns, AnyFloatResult(y));
}

}  // namespace tracestep::cuda
