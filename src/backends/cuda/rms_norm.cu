// rms_norm and its gradient over dense rows. The gradient of the weight is summed in two stages:
// every block takes a fixed number of rows and leaves one partial sum per column.
#include "backends/cuda/dense_reduce.cuh"
#include "backends/cuda/kernels.h"
#include "ops/cuda_plans.h"

namespace tracestep::cuda {
namespace {

// --- forward ----------------------------------------------------------------------------------
constexpr unsigned kNormThreads = 512;

struct NormArgs {
  const void* x;
  AnyFloat w;
  void* y;      // nullptr: nobody reads it
  float* rstd;  // nullptr: nobody reads it
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
__global__ void __launch_bounds__(kNormThreads) rms_norm_kernel(NormArgs args) {
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
                .eps = static_cast<float>(call.node.attrs.real("eps")),
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
  void* dx;         // may be dy's storage; nullptr: nobody reads it
  float* partials;  // [blocks, width]; nullptr: nobody reads dw
  std::int64_t rows, width, rows_per_block;
  int lanes;
};

// Elements of a row that a thread holds, and threads of a row that fits in registers.
constexpr int kHeld = 16;
constexpr unsigned kGradientLanes = 512;
// Threads of a block with several rows at a time.
constexpr int kTeamThreads = 256;

// A thread's part of dy and x: kHeld / N packs, `lanes` packs apart.
template <class T, int N>
struct Held {
  Pack<T, N> dy[kHeld / N], x[kHeld / N];

  __device__ void load(const GradientArgs& args, std::int64_t row, bool is_row, int lane) {
    const T* from_dy = static_cast<const T*>(args.dy) + row * args.width;
    const T* from_x = static_cast<const T*>(args.x) + row * args.width;
#pragma unroll
    for (int k = 0; k < kHeld / N; ++k) {
      const int column = (k * args.lanes + lane) * N;
      dy[k] = x[k] = {};
      if (!is_row || column >= args.width) continue;
      dy[k] = load_pack<N>(from_dy + column);
      x[k] = load_pack<N>(from_x + column);
    }
  }
};

// The sums of all teams of the block, a row of partial results.
template <int N>
__device__ void store_partials(const GradientArgs& args, const float (&dw)[kHeld], int team,
                               int lane) {
  alignas(32) __shared__ float sums[kTeamThreads * kHeld];  // [teams, kHeld * lanes]
  const int width = static_cast<int>(args.width), held = kHeld * args.lanes;
  const int teams = static_cast<int>(blockDim.x) / args.lanes;
  float* out = args.partials + blockIdx.x * args.width;
#pragma unroll
  for (int k = 0; k < kHeld / N; ++k) {
    const int column = (k * args.lanes + lane) * N;
    Pack<float, N> own;
#pragma unroll
    for (int i = 0; i < N; ++i) own.at[i] = dw[k * N + i];
    if (teams > 1) {
      *reinterpret_cast<Pack<float, N>*>(sums + team * held + column) = own;
    } else if (column < width) {
      store_pack(out + column, own);
    }
  }
  if (teams == 1) return;
  __syncthreads();  // the sums of all teams are there
  for (int column = static_cast<int>(threadIdx.x); column < width; column += blockDim.x) {
    float total = 0.0f;
    for (int t = 0; t < teams; ++t) total += sums[t * held + column];
    out[column] = total;
  }
}

// Teams of `lanes` threads take every row of the block in turn; while one is worked on, the next
// one is on its way, if it can be moved in packs. Packs of N elements are aligned in all rows.
template <class T, int N>
__global__ void __launch_bounds__(kGradientLanes) rms_norm_grad_kernel(GradientArgs args) {
  constexpr bool kAhead = N > 1;
  __shared__ float scratch[2][kWarp];
  const int team = static_cast<int>(threadIdx.x) / args.lanes;
  const int lane = static_cast<int>(threadIdx.x) % args.lanes;
  const int teams = static_cast<int>(blockDim.x) / args.lanes;
  float w[kHeld], dw[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int column = (i / N * args.lanes + lane) * N + i % N;
    w[i] = column < args.width ? args.w.at(column) : 0.0f;
    dw[i] = 0.0f;
  }
  const std::int64_t begin = blockIdx.x * args.rows_per_block;
  const std::int64_t end = ::min(begin + args.rows_per_block, args.rows);
  Held<T, N> own, next;
  if constexpr (kAhead) next.load(args, begin + team, begin + team < end, lane);
  int turn = 0;
  for (std::int64_t first = begin; first < end; first += teams, turn ^= 1) {
    const std::int64_t row = first + team;
    if constexpr (kAhead) {
      own = next;
      next.load(args, row + teams, row + teams < end, lane);
    } else {
      own.load(args, row, row < end, lane);
    }
    const float rstd = row < end ? args.rstd.at(row) : 0.0f;
    float terms[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const float dy = to_float(own.dy[i / N].at[i % N]);
      const float normed = to_float(own.x[i / N].at[i % N]) * rstd;
      terms[i] = dy * w[i] * normed;
      dw[i] += dy * normed;
    }
    const float inner = lanes_reduce<Plus>(sum_in_pairs<kHeld>(terms), args.lanes, scratch[turn]) /
                        static_cast<float>(args.width);
    if (args.dx == nullptr || row >= end) continue;
    T* dx = static_cast<T*>(args.dx) + row * args.width;
#pragma unroll
    for (int k = 0; k < kHeld / N; ++k) {
      Pack<T, N> out;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float normed = to_float(own.x[k].at[i]) * rstd;
        out.at[i] =
            from_float<T>((to_float(own.dy[k].at[i]) * w[k * N + i] - normed * inner) * rstd);
      }
      const int column = (k * args.lanes + lane) * N;
      if (column < args.width) store_pack(dx + column, out);
    }
  }
  if (args.partials != nullptr) store_partials<N>(args, dw, team, lane);
}

// Rows of any width, by a block, read twice; the sums of the weight's gradient grow in memory.
template <class T>
__global__ void __launch_bounds__(kMostThreads) rms_norm_grad_long_rows_kernel(GradientArgs args) {
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
    inner = lanes_reduce<Plus>(inner, args.lanes, scratch[(row - begin) % 2]) /
            static_cast<float>(args.width);
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
                    .lanes = static_cast<int>(kMostThreads)};
  with_floating(x.dtype, [&]<class T>(T) {
    const bool packed = width % kPack<T> == 0 && is_aligned(dy.data, 16) &&
                        is_aligned(x.data, 16) && is_aligned(dx.data, 16);
    auto kernel = packed ? rms_norm_grad_kernel<T, kPack<T>> : rms_norm_grad_kernel<T, 1>;
    unsigned threads = kMostThreads;
    if (width > std::int64_t{kHeld} * kGradientLanes) {
      kernel = rms_norm_grad_long_rows_kernel<T>;
    } else {
      args.lanes = plan_rows(ceil_div(width, kHeld), 1, kGradientLanes).lanes;
      threads = static_cast<unsigned>(std::max(1, kTeamThreads / args.lanes) * args.lanes);
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
