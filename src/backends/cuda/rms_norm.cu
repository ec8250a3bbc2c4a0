// rms_norm and its gradient over dense rows. The gradient of the weight is summed in two stages:
// every block takes a fixed number of rows and leaves one partial sum per column.
#include "backends/cuda/dense_reduce.cuh"
#include "backends/cuda/kernels.h"
#include "backends/cuda/row_packs.cuh"
#include "planning/cuda_plans.h"

namespace tracestep::cuda {
namespace {

// --- forward ----------------------------------------------------------------------------------
constexpr unsigned kNormThreads = 512;

struct NormArgs {
  const void* x;
  AnyFloat w;
  void* y;      // nullptr: not needed
  float* rstd;  // nullptr: not needed
  std::int64_t rows, width;
  float eps;
  int lanes;
  bool aligned;  // x, y and w can be moved in whole packs
};

// The weights of a pack that begins at `begin`, which may hang over the ends.
template <int N>
__device__ void load_weights(const NormArgs& args, std::int64_t begin, float (&w)[N]) {
  if (args.aligned && begin < args.width) return args.w.load(begin, w);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const std::int64_t at = begin + i;
    w[i] = at >= 0 && at < args.width ? args.w.at(at) : 0.0f;
  }
}

// kFits: the row is read once, else twice.
template <class T, int kCount, bool kFits>
__global__ void __launch_bounds__(kNormThreads)
    rms_norm_kernel(Predecessors before, NormArgs args) {
  before.wait();
  using Index = std::conditional_t<kFits, int, std::int64_t>;
  constexpr int kSize = kPack<T>;
  __shared__ float scratch[kWarp];
  const int rows_per_block = static_cast<int>(blockDim.x) / args.lanes;
  const int lane = static_cast<int>(threadIdx.x) % args.lanes;
  const std::int64_t row = std::int64_t{blockIdx.x} * rows_per_block + threadIdx.x / args.lanes;
  const Index width = row < args.rows ? static_cast<Index>(args.width) : 0;
  const T* x = static_cast<const T*>(args.x) + row * args.width;
  const Packs<Index> first{static_cast<Index>(lane * kSize - pack_shift(x)),
                           static_cast<Index>(args.lanes * kSize)};
  Packs<Index> mine = first;
  Pack<T, kSize> packs[kCount];
  float squares = 0.0f;
  do {
    load_row(x, mine, width, width, true, T{}, packs);
    float terms[kCount * kSize];
#pragma unroll
    for (int i = 0; i < kCount * kSize; ++i) {
      terms[i] = Squared()(to_float(packs[i / kSize].at[i % kSize]));
    }
    squares += sum_in_pairs<kCount * kSize>(terms);
    mine.first += kCount * mine.step;
  } while (!kFits && mine.first < width);
  squares = lanes_reduce<Plus>(squares, args.lanes, scratch);
  const float rstd = 1.0f / sqrtf(squares / static_cast<float>(args.width) + args.eps);
  if (args.rstd != nullptr && lane == 0 && row < args.rows) args.rstd[row] = rstd;
  if (args.y == nullptr) return;
  T* y = static_cast<T*>(args.y) + row * args.width;
  const bool aligned = pack_shift(y) == pack_shift(x);
  mine = first;
  do {
    if constexpr (!kFits) load_row(x, mine, width, width, true, T{}, packs);
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const Index begin = mine.first + k * mine.step;
      float w[kSize];
      load_weights(args, begin, w);
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        packs[k].at[i] = from_float<T>(w[i] * (to_float(packs[k].at[i]) * rstd));
      }
      store_row_pack(y, begin, width, aligned, packs[k]);
    }
    mine.first += kCount * mine.step;
  } while (!kFits && mine.first < width);
}

void rms_norm(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0];
  NormArgs args{.x = x.data,
                .w = AnyFloat(call.inputs[1]),
                .y = y.data,
                .rstd = call.outputs[1].as<float>(),
                .rows = call.outputs[1].count(),
                .width = x.shape.back(),
                .eps = static_cast<float>(call.attrs.real("eps")),
                .lanes = 1,
                .aligned = false};
  if (args.rows == 0) return;
  with_floating(x.dtype, [&]<class T>(T) {
    const std::int64_t packs = packs_of_rows<T>(x.data, args.width);
    const bool fits = packs <= 4 * std::int64_t{kNormThreads}, is_short = packs <= 2 * kWarp;
    const RowPlan plan = plan_rows(packs, is_short ? 2 : 4, kNormThreads);
    args.lanes = plan.lanes;
    args.aligned =
        packs * kPack<T> == args.width && is_aligned(y.data, 16) && args.w.is_aligned_to(kPack<T>);
    const auto kernel = !fits      ? rms_norm_kernel<T, 2, false>
                        : is_short ? rms_norm_kernel<T, 2, true>
                                   : rms_norm_kernel<T, 4, true>;
    launch(call, {.blocks = plan.blocks(args.rows), .threads = plan.threads()}, kernel, args);
  });
}

// --- gradient ---------------------------------------------------------------------------------
struct GradientArgs {
  const void *dy, *x;
  AnyFloat w, rstd;
  void* dx;         // may be dy's storage; nullptr: not needed
  float* partials;  // [blocks, width]; nullptr: dw is not needed
  std::int64_t rows, width, rows_per_block;
  float inverse_width;
  int lanes, teams;
};

// The widest rows that a block keeps in registers.
constexpr int kWidest = 8192;
// Elements of a row that a thread holds, in packs of N. Single ones take an address each.
template <int N>
constexpr int kHeld = N > 1 ? 16 : 8;
// Threads of a block with several rows at a time.
constexpr int kTeamThreads = 256;

// A thread's part of dy and x: packs of N elements, `lanes` packs apart.
template <class T, int N>
struct Held {
  static constexpr int kPacks = kHeld<N> / N;

  RowPack<T, N> dy[kPacks], x[kPacks];

  // The thread's part of a row: `packs` packs that begin `at` elements after `block`.
  __device__ void load(const GradientArgs& args, std::int64_t block, int at, int packs) {
    const T* from_dy = static_cast<const T*>(args.dy) + block + at;
    const T* from_x = static_cast<const T*>(args.x) + block + at;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      dy[k] = x[k] = RowPack<T, N>::filled(T{});
      if (k >= packs) continue;
      dy[k] = RowPack<T, N>::load(from_dy + k * args.lanes * N);
      x[k] = RowPack<T, N>::load(from_x + k * args.lanes * N);
    }
  }

  // Σ dy·w·x·rstd; adds dy·x·rstd to dw.
  __device__ float add(float rstd, const float (&w)[kHeld<N>], float (&dw)[kHeld<N>]) const {
    float sums[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      float dys[N], normed[N];
      dy[k].floats(dys);
      x[k].floats(normed);
      sums[k] = 0.0f;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        normed[i] *= rstd;
        dw[k * N + i] += dys[i] * normed[i];
        sums[k] += dys[i] * w[k * N + i] * normed[i];
      }
    }
    return sum_in_pairs<kPacks>(sums);
  }

  // `inner`: the mean of dy·w·x·rstd over the row.
  __device__ void store_dx(const GradientArgs& args, std::int64_t block, int at, int packs,
                           float rstd, const float (&w)[kHeld<N>], float inner) const {
    T* dx = static_cast<T*>(args.dx) + block + at;
    const float factor = rstd * inner;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      float out[N], xs[N];
      dy[k].floats(out);
      x[k].floats(xs);
#pragma unroll
      for (int i = 0; i < N; ++i) out[i] = (out[i] * w[k * N + i] - xs[i] * factor) * rstd;
      if (k < packs) RowPack<T, N>::rounded(out).store(dx + k * args.lanes * N);
    }
  }
};

// The lanes of a team agree on several sums at the price of one barrier. `scratch`: kWarp of each.
template <int kCount>
__device__ void sum_lanes(float (&sums)[kCount], int lanes, int first_warp,
                          float (&scratch)[kCount][kWarp]) {
  if (lanes < kWarp) {
#pragma unroll
    for (int r = 0; r < kCount; ++r) sums[r] = lanes_reduce<Plus>(sums[r], lanes, nullptr);
    return;
  }
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = lanes / kWarp;
#pragma unroll
  for (int r = 0; r < kCount; ++r) sums[r] = warp_reduce<Plus>(sums[r]);
  if (warps == 1) return;
#pragma unroll
  for (int r = 0; r < kCount; ++r) {
    if (lane == 0) scratch[r][warp] = sums[r];
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kCount; ++r) {
    sums[r] = warp_reduce<Plus>(lane < warps ? scratch[r][first_warp + lane] : 0.0f);
  }
}

// Adds up the sums of the block's teams: one row of the partial results.
template <int N>
__device__ void store_partials(const GradientArgs& args, const float (&dw)[kHeld<N>], int team,
                               int lane) {
  alignas(32) __shared__ float sums[kTeamThreads * kHeld<N>];  // [teams, held]
  const int width = static_cast<int>(args.width), held = kHeld<N> * args.lanes;
  float* out = args.partials + blockIdx.x * args.width;
#pragma unroll
  for (int k = 0; k < kHeld<N> / N; ++k) {
    const int column = (k * args.lanes + lane) * N;
    Pack<float, N> own;
#pragma unroll
    for (int i = 0; i < N; ++i) own.at[i] = dw[k * N + i];
    if (args.teams > 1) {
      *reinterpret_cast<Pack<float, N>*>(sums + team * held + column) = own;
    } else if (column < width) {
      store_pack(out + column, own);
    }
  }
  if (args.teams == 1) return;
  __syncthreads();  // the sums of all teams are there
  for (int column = static_cast<int>(threadIdx.x); column < width; column += blockDim.x) {
    float total = 0.0f;
    for (int t = 0; t < args.teams; ++t) total += sums[t * held + column];
    out[column] = total;
  }
}

// Teams of `lanes` threads take the rows of the block in turn. Where rows can be moved in packs,
// the next ones are loaded while these are worked on. A team works on kTogether rows at once: rows
// of 16-bit elements have half the bytes, so two of them keep as many in flight as one of float32,
// with half as many waits for a sum.
template <class T, int N, int kTogether = 1>
__global__ void __launch_bounds__(kWidest / kHeld<N>)
    rms_norm_grad_kernel(Predecessors before, GradientArgs args) {
  before.wait();
  constexpr bool kAhead = N > 1;
  __shared__ float scratch[2][kTogether][kWarp], rstds[RmsNormGradPlan::kMostRows];
  const int team = static_cast<int>(threadIdx.x) / args.lanes;
  const int lane = static_cast<int>(threadIdx.x) % args.lanes;
  const int width = static_cast<int>(args.width), step = args.lanes * N;
  const int first_warp = team * (args.lanes / kWarp);
  const int packs = (width - lane * N + step - 1) / step;  // at most kHeld<N> / N
  const std::int64_t first_row = blockIdx.x * args.rows_per_block;
  const int rows = static_cast<int>(::min(args.rows_per_block, args.rows - first_row));
  const std::int64_t block = first_row * args.width;  // offsets from it fit in 32 bits
  const int first = lane * N;
  Held<T, N> own[kTogether], next[kTogether];
  const auto load = [&](Held<T, N>(&held)[kTogether], int row) {
#pragma unroll
    for (int r = 0; r < kTogether; ++r, row += args.teams) {
      held[r].load(args, block, first + row * width, row < rows ? packs : 0);
    }
  };
  if constexpr (kAhead) load(next, team);
  for (int row = static_cast<int>(threadIdx.x); row < rows; row += blockDim.x) {
    rstds[row] = args.rstd.at(first_row + row);
  }
  float w[kHeld<N>], dw[kHeld<N>];
#pragma unroll
  for (int i = 0; i < kHeld<N>; ++i) {
    const int column = (i / N * args.lanes + lane) * N + i % N;
    w[i] = column < width ? args.w.at(column) : 0.0f;
    dw[i] = 0.0f;
  }
  __syncthreads();  // all rstds are there
  int turn = 0;
  for (int begin = 0; begin < rows; begin += kTogether * args.teams, turn ^= 1) {
    const int row = begin + team;
    if constexpr (kAhead) {
#pragma unroll
      for (int r = 0; r < kTogether; ++r) own[r] = next[r];
      load(next, row + kTogether * args.teams);
    } else {
      load(own, row);
    }
    float inner[kTogether];
#pragma unroll
    for (int r = 0; r < kTogether; ++r) {
      const int at = row + r * args.teams;
      inner[r] = own[r].add(at < rows ? rstds[at] : 0.0f, w, dw);
    }
    sum_lanes(inner, args.lanes, first_warp, scratch[turn]);
    if (args.dx == nullptr) continue;
#pragma unroll
    for (int r = 0; r < kTogether; ++r) {
      const int at = row + r * args.teams;
      if (at >= rows) continue;
      own[r].store_dx(args, block, first + at * width, packs, rstds[at], w,
                      inner[r] * args.inverse_width);
    }
  }
  if (args.partials != nullptr) store_partials<N>(args, dw, team, lane);
}

// Rows of any width, each read twice by a whole block; dw is summed in global memory.
template <class T>
__global__ void __launch_bounds__(kMostThreads)
    rms_norm_grad_long_rows_kernel(Predecessors before, GradientArgs args) {
  before.wait();
  __shared__ float scratch[2][kWarp];
  const std::int64_t begin = blockIdx.x * args.rows_per_block;
  const std::int64_t end = ::min(begin + args.rows_per_block, args.rows);
  float* dw = args.partials + blockIdx.x * args.width;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* dy = static_cast<const T*>(args.dy) + row * args.width;
    const T* x = static_cast<const T*>(args.x) + row * args.width;
    T* dx = static_cast<T*>(args.dx) + row * args.width;
    const float rstd = args.rstd.at(row);
    float inner = 0.0f;
    for (std::int64_t i = threadIdx.x; i < args.width; i += blockDim.x) {
      const float term = to_float(dy[i]) * (to_float(x[i]) * rstd);
      inner += term * args.w.at(i);
      if (args.partials != nullptr) dw[i] = row == begin ? term : dw[i] + term;
    }
    inner = lanes_reduce<Plus>(inner, args.lanes, scratch[(row - begin) % 2]) * args.inverse_width;
    if (args.dx == nullptr) continue;
    for (std::int64_t i = threadIdx.x; i < args.width; i += blockDim.x) {
      const float normed = to_float(x[i]) * rstd;
      dx[i] = from_float<T>((to_float(dy[i]) * args.w.at(i) - normed * inner) * rstd);
    }
  }
}

void rms_norm_grad(const KernelCall& call) {
  const TensorRef &dy = call.inputs[0], &x = call.inputs[1];
  const TensorRef &dx = call.outputs[0], &dw = call.outputs[1];
  const std::int64_t rows = call.inputs[3].count(), width = x.shape.back();
  if (width == 0) return;
  const RmsNormGradPlan plan = plan_rms_norm_grad(rows, width);
  auto* partials = reinterpret_cast<float*>(call.workspace.data());
  GradientArgs args{.dy = dy.data,
                    .x = x.data,
                    .w = AnyFloat(call.inputs[2]),
                    .rstd = AnyFloat(call.inputs[3]),
                    .dx = dx.data,
                    .partials = dw.data != nullptr ? partials : nullptr,
                    .rows = rows,
                    .width = width,
                    .rows_per_block = plan.rows_per_part,
                    .inverse_width = 1.0f / static_cast<float>(width),
                    .lanes = static_cast<int>(kMostThreads),
                    .teams = 1};
  with_floating(x.dtype, [&]<class T>(T) {
    const bool packed = width % kPack<T> == 0 && is_aligned(dy.data, 16) &&
                        is_aligned(x.data, 16) && is_aligned(dx.data, 16);
    unsigned threads = kMostThreads;
    auto kernel = rms_norm_grad_long_rows_kernel<T>;
    if (width <= kWidest) {
      const int held = packed ? kHeld<kPack<T>> : kHeld<1>;
      args.lanes = plan_rows(ceil_div(width, held), 1, static_cast<unsigned>(kWidest / held)).lanes;
      args.teams = std::max(1, kTeamThreads / args.lanes);
      threads = static_cast<unsigned>(args.teams * args.lanes);
      // Where a row takes the whole block, a second one costs more in registers than it saves.
      const bool together = sizeof(T) == 2 && args.lanes < kTeamThreads;
      kernel = !packed    ? rms_norm_grad_kernel<T, 1>
               : together ? rms_norm_grad_kernel<T, kPack<T>, static_cast<int>(4 / sizeof(T))>
                          : rms_norm_grad_kernel<T, kPack<T>>;
    }
    launch(call, {.blocks = static_cast<unsigned>(plan.parts), .threads = threads}, kernel, args);
  });
  if (dw.data != nullptr) combine_partials<Plus>(call, partials, plan.parts, dw);
}

}  // namespace

void add_rms_norm_kernels(KernelTable& table) {
  table.add("rms_norm", rms_norm);
  table.add("rms_norm_grad", rms_norm_grad);
}

}  // namespace tracestep::cuda
