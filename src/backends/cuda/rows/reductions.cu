// sum and max over any axes of any layout. Where the reduced elements of a result are adjacent,
// threads share a row; otherwise a block takes a tile of neighbouring results. Few results of many
// elements are cut into parts, whose results are combined by a second kernel.
#include <bit>

#include "backends/cuda/kernels.h"
#include "backends/cuda/maps/strided.cuh"
#include "backends/cuda/rows/dense_reduce.cuh"
#include "planning/cuda_plans.h"

namespace tracestep::cuda {
namespace {

struct Reduction {
  const void* x = nullptr;
  void* y = nullptr;
  float* partials = nullptr;  // [parts, results]; nullptr: one part, straight into y
  bool y_is_float = false;    // True: y is float32, whatever x is.
  Walk<1> kept;               // where the elements of result i begin
  Walk<1> reduced;            // where element i of a result lies from there
  std::int64_t results = 0;   // how many
  std::int64_t count = 0;     // elements reduced into one result
  std::int64_t part = 0;      // how many of these a block takes
  int lanes = 1;              // threads that share a row; in a tile, threads side by side
};

__device__ std::int64_t offset_of(const Walk<1>& walk, std::int64_t i) {
  if (walk.rank <= 1) return i * walk.strides[0][0];
  std::int64_t out[1];
  if (walk.count < std::int64_t{1} << 31) {
    walk.offsets(static_cast<std::uint32_t>(i), out);
  } else {
    walk.offsets(static_cast<std::uint64_t>(i), out);
  }
  return out[0];
}

// Stores the results column .. column + N - 1, or their parts to the workspace.
template <class T, int N>
__device__ void put_results(const Reduction& r, std::int64_t column, const float (&totals)[N]) {
  if (r.partials != nullptr || r.y_is_float) {
    Pack<float, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) out.at[j] = totals[j];
    float* to =
        r.partials != nullptr ? r.partials + blockIdx.y * r.results : static_cast<float*>(r.y);
    store_pack(to + column, out);
  } else {
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) out.at[j] = from_float<T>(totals[j]);
    store_pack(static_cast<T*>(r.y) + column, out);
  }
}

// --- rows: a block of up to kRowThreads threads reduces one or more ----------------------------
constexpr unsigned kRowThreads = 512;

template <class F, class T>
__global__ void __launch_bounds__(kRowThreads)
    reduce_rows_kernel(Predecessors before, const __grid_constant__ Reduction r) {
  before.wait();
  __shared__ float scratch[kWarp];
  const int rows_per_block = static_cast<int>(blockDim.x) / r.lanes;
  const std::int64_t row = std::int64_t{blockIdx.x} * rows_per_block + threadIdx.x / r.lanes;
  const int lane = static_cast<int>(threadIdx.x) % r.lanes;
  const bool is_row = row < r.results;
  const std::int64_t begin = blockIdx.y * r.part;
  const std::int64_t count = is_row ? ::max(::min(r.part, r.count - begin), std::int64_t{0}) : 0;
  const T* x = static_cast<const T*>(r.x) + (is_row ? offset_of(r.kept, row) + begin : 0);
  const float total[1] = {
      lanes_reduce<F>(reduce_dense<F, Same>(x, count, lane, r.lanes), r.lanes, scratch)};
  if (is_row && lane == 0) put_results<T>(r, row, total);
}

// --- tiles of neighbouring results, each by a block of kTileThreads threads --------------------
constexpr int kTileThreads = 256;

// Reduces elements first, first + step, ... before `end` for N neighbouring results; where N > 1
// these elements have one stride. Long sums are sums of partial sums.
template <class F, int N, class T>
__device__ void reduce_strided(const T* x, const Walk<1>& reduced, std::int64_t first,
                               std::int64_t end, std::int64_t step, float (&total)[N]) {
  constexpr int kAhead = N > 1 ? 4 : 8;  // loads in flight
  constexpr int kStepsPerSum = 64 / kAhead;
  while (first < end) {
    float sum[N];
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] = F::kNeutral;
    for (int s = 0; s < kStepsPerSum && first < end; ++s, first += kAhead * step) {
      Pack<T, N> packs[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
#pragma unroll
        for (int j = 0; j < N; ++j) packs[k].at[j] = from_float<T>(F::kNeutral);
        const std::int64_t i = first + k * step;
        const std::int64_t offset = N > 1 ? i * reduced.strides[0][0] : offset_of(reduced, i);
        if (i < end) packs[k] = load_pack<N>(x + offset);
      }
#pragma unroll
      for (int j = 0; j < N; ++j) {
        float values[kAhead];
#pragma unroll
        for (int k = 0; k < kAhead; ++k) values[k] = to_float(packs[k].at[j]);
        sum[j] = F()(sum[j], fold_in_pairs<F, kAhead>(values));
      }
    }
#pragma unroll
    for (int j = 0; j < N; ++j) total[j] = F()(total[j], sum[j]);
  }
}

// Reduces tiles: threads 0 .. lanes - 1 (a power of two) take N neighbouring results each, and
// share the elements of these with the threads whose numbers are `lanes`, 2 lanes, … higher.
template <class F, class T, int N>
__global__ void __launch_bounds__(kTileThreads)
    reduce_tiles_kernel(Predecessors before, const __grid_constant__ Reduction r) {
  before.wait();
  __shared__ Pack<float, N> shared[kTileThreads];
  const int thread = static_cast<int>(threadIdx.x), height = kTileThreads / r.lanes;
  const std::int64_t column = (std::int64_t{blockIdx.x} * r.lanes + thread % r.lanes) * N;
  const std::int64_t begin = blockIdx.y * r.part, end = ::min(begin + r.part, r.count);
  float total[N];
#pragma unroll
  for (int j = 0; j < N; ++j) total[j] = F::kNeutral;
  if (column < r.results) {
    const T* x = static_cast<const T*>(r.x) + offset_of(r.kept, column);
    reduce_strided<F, N>(x, r.reduced, begin + thread / r.lanes, end, height, total);
  }
  for (int half = kTileThreads / 2; half >= r.lanes; half /= 2) {
    if (thread >= half && thread < 2 * half) {
#pragma unroll
      for (int j = 0; j < N; ++j) shared[thread].at[j] = total[j];
    }
    __syncthreads();  // the upper half has written
    if (thread < half) {
#pragma unroll
      for (int j = 0; j < N; ++j) total[j] = F()(total[j], shared[thread + half].at[j]);
    }
  }
  if (thread < r.lanes && column < r.results) put_results<T>(r, column, total);
}

// --- the ops ----------------------------------------------------------------------------------
// Describes the reduction of x as [kept..., reduced...], the reduced axes with the longest strides
// first, since their order is free and neighbours in memory are read together.
Reduction split_axes(const TensorRef& x, const Dims& axes) {
  Shape kept_shape, reduced_shape;
  Strides kept_strides, reduced_strides;
  for (int i = 0; i < x.shape.rank(); ++i) {
    bool is_reduced = false;
    for (std::int64_t axis : axes) is_reduced |= axis == i || axis + x.shape.rank() == i;
    (is_reduced ? reduced_shape : kept_shape).push_back(x.shape[i]);
    (is_reduced ? reduced_strides : kept_strides).push_back(x.strides[i]);
    if (!is_reduced) continue;
    for (int j = reduced_shape.rank() - 1; j > 0; --j) {
      if (reduced_strides[j - 1] >= reduced_strides[j]) break;
      std::swap(reduced_strides[j - 1], reduced_strides[j]);
      std::swap(reduced_shape[j - 1], reduced_shape[j]);
    }
  }
  Reduction r;
  r.x = x.data;
  r.results = kept_shape.product();
  r.count = reduced_shape.product();
  if (r.results > 0 && r.count > 0) {
    r.kept = make_walk<1>(kept_shape, {kept_strides});
    r.reduced = make_walk<1>(reduced_shape, {reduced_strides});
  }
  return r;
}

// True if all results and elements can be moved in packs, of n neighbouring results each.
bool has_packs(const Reduction& r, std::int64_t n) {
  const Walk<1>&kept = r.kept, &reduced = r.reduced;
  bool out = kept.rank > 0 && kept.strides[0][0] == 1 && kept.sizes[0] % n == 0 &&
             reduced.rank <= 1 && reduced.strides[0][0] % n == 0 && is_aligned(r.x, 16) &&
             is_aligned(r.y, 16);
  for (int d = 1; d < kept.rank; ++d) out = out && kept.strides[d][0] % n == 0;
  return out;
}

void cut_into_parts(Reduction& r, std::int64_t parts, std::int64_t multiple) {
  r.part = ceil_div(ceil_div(r.count, parts), multiple) * multiple;
  if (parts == 1) r.partials = nullptr;
}

template <class F, class T>
void launch_rows(const KernelCall& call, Reduction& r, std::int64_t parts) {
  constexpr int kPacksPerThread = 8, kWholePacks = 16;
  cut_into_parts(r, parts, kWholePacks);
  const RowPlan plan =
      plan_rows(packs_of_rows<T>(r.x, std::min(r.part, r.count)), kPacksPerThread, kRowThreads);
  r.lanes = plan.lanes;
  launch(call,
         {.blocks = plan.blocks(r.results),
          .threads = plan.threads(),
          .blocks_y = static_cast<unsigned>(parts)},
         reduce_rows_kernel<F, T>, r);
}

// Launches by tiles. side_by_side: results lie closer together than the elements of one result.
template <class F, class T, int N>
void launch_tiles(const KernelCall& call, Reduction& r, std::int64_t parts, bool side_by_side) {
  cut_into_parts(r, parts, 1);
  const std::int64_t packs = ceil_div(r.results, N);
  const auto power = [](std::int64_t n, std::int64_t most) {
    const std::int64_t within = std::clamp<std::int64_t>(n, 1, most);
    return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(within)));
  };
  // No more threads share a result than there are elements to share.
  const int least_lanes = kTileThreads / power(std::min(r.part, r.count), kTileThreads);
  r.lanes = std::max(least_lanes, side_by_side ? power(packs, kWarp) : 1);
  launch(call,
         {.blocks = static_cast<unsigned>(ceil_div(packs, r.lanes)),
          .threads = kTileThreads,
          .blocks_y = static_cast<unsigned>(parts)},
         reduce_tiles_kernel<F, T, N>, r);
}

template <class F>
void reduce(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0];
  Reduction r = split_axes(x, call.attrs.ints("axes"));
  if (r.results == 0) return;
  r.y = y.data;
  r.y_is_float = y.dtype == DType::kF32;
  r.partials = reinterpret_cast<float*>(call.workspace.data());
  const ReductionPlan plan = plan_reduction(r.results, r.count);
  const Walk<1>&kept = r.kept, &reduced = r.reduced;
  const bool by_rows = reduced.rank == 1 && reduced.strides[0][0] == 1;
  const std::int64_t stride = reduced.strides[0][0];  // 0: the same element again
  const bool side_by_side = kept.rank > 0 && (stride == 0 || kept.strides[0][0] <= stride);
  const std::int64_t parts = side_by_side ? plan.column_parts : plan.row_parts;
  with_floating(x.dtype, [&]<class T>(T) {
    if (by_rows) return launch_rows<F, T>(call, r, parts);
    if (side_by_side && has_packs(r, kPack<T>)) {
      return launch_tiles<F, T, kPack<T>>(call, r, parts, side_by_side);
    }
    launch_tiles<F, T, 1>(call, r, parts, side_by_side);
  });
  if (parts > 1) combine_partials<F>(call, r.partials, parts, y);
}

}  // namespace

void add_reduction_kernels(KernelTable& table) {
  table.add("sum", reduce<Plus>);
  table.add("max", reduce<Largest>);
  table.add("global_norm", global_norm);
}

}  // namespace tracestep::cuda
