// rms_norm, layer_norm (kCentred: rows are first moved to the mean 0) and their gradients over
// dense rows. The gradients of weight and bias are summed in two stages: every block takes a fixed
// number of rows and leaves one partial sum per column.
#include "backends/cuda/kernels.h"
#include "backends/cuda/rows/dense_reduce.cuh"
#include "backends/cuda/rows/row_packs.cuh"
#include "planning/cuda_plans.h"

namespace tracestep::cuda {
namespace {

// --- forward, by blocks of up to kNormThreads threads -----------------------------------------
constexpr unsigned kNormThreads = 512;

struct NormArgs {
  const void* x;
  AnyFloat w, b;  // b.data is nullptr: no bias
  void* y;        // nullptr: not needed
  float* mean;    // nullptr: not needed
  float* rstd;    // nullptr: not needed
  std::int64_t rows, width;
  float eps;
  int lanes;
  bool aligned;  // x, y, w and b can be moved in whole packs
};

// Loads the weights from element `begin` on, for a pack of a row; 0 where the pack is outside it.
template <int N>
__device__ void load_weights(const NormArgs& args, const AnyFloat& from, std::int64_t begin,
                             float (&w)[N]) {
  if (args.aligned && begin < args.width) return from.load(begin, w);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const std::int64_t at = begin + i;
    w[i] = at >= 0 && at < args.width ? from.at(at) : 0.0f;
  }
}

// Sets `terms` to squared differences from the mean, and to 0 where a pack is outside the row.
template <int N, class T, class Index>
__device__ void centred_squares(const Pack<T, N>& pack, Index begin, Index width, float mean,
                                float* terms) {
  const bool is_whole = begin >= 0 && begin + N <= width;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float apart = to_float(pack.at[i]) - mean;
    terms[i] = is_whole || (begin + i >= 0 && begin + i < width) ? apart * apart : 0.0f;
  }
}

// Normalises rows. kFits: the row is read once, else for every sum and for the result.
template <class T, int kCount, bool kFits, bool kCentred>
__global__ void __launch_bounds__(kNormThreads) norm_kernel(Predecessors before, NormArgs args) {
  before.wait();
  using Index = std::conditional_t<kFits, int, std::int64_t>;
  constexpr int kSize = kPack<T>;
  __shared__ float scratch[kCentred ? 2 : 1][kWarp];
  const int rows_per_block = static_cast<int>(blockDim.x) / args.lanes;
  const int lane = static_cast<int>(threadIdx.x) % args.lanes;
  const std::int64_t row = std::int64_t{blockIdx.x} * rows_per_block + threadIdx.x / args.lanes;
  const Index width = row < args.rows ? static_cast<Index>(args.width) : 0;
  const T* x = static_cast<const T*>(args.x) + row * args.width;
  const Packs<Index> first{static_cast<Index>(lane * kSize - pack_shift(x)),
                           static_cast<Index>(args.lanes * kSize)};
  Packs<Index> mine = first;
  Pack<T, kSize> packs[kCount];
  // Returns the sum over the row of the terms that `put` makes of packs; `read`: loads these first.
  const auto sum_of = [&](bool read, float* shared, const auto& put) {
    float total = 0.0f;
    mine = first;
    do {
      if (read || !kFits) load_row(x, mine, width, width, true, T{}, packs);
      float terms[kCount * kSize];
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        put(packs[k], static_cast<Index>(mine.first + k * mine.step), terms + k * kSize);
      }
      total += sum_in_pairs<kCount * kSize>(terms);
      mine.first += kCount * mine.step;
    } while (!kFits && mine.first < width);
    return lanes_reduce<Plus>(total, args.lanes, shared);
  };
  const auto width_of_row = static_cast<float>(args.width);
  float mean = 0.0f, squares;
  if constexpr (kCentred) {
    mean = sum_of(true, scratch[1],
                  [](const Pack<T, kSize>& pack, Index, float* terms) {
                    for (int i = 0; i < kSize; ++i) terms[i] = to_float(pack.at[i]);
                  }) /
           width_of_row;
    squares = sum_of(false, scratch[0], [&](const Pack<T, kSize>& pack, Index begin, float* terms) {
      centred_squares<kSize>(pack, begin, width, mean, terms);
    });
    if (args.mean != nullptr && lane == 0 && row < args.rows) args.mean[row] = mean;
  } else {
    squares = sum_of(true, scratch[0], [](const Pack<T, kSize>& pack, Index, float* terms) {
      for (int i = 0; i < kSize; ++i) terms[i] = Squared()(to_float(pack.at[i]));
    });
  }
  const float rstd = 1.0f / sqrtf(squares / width_of_row + args.eps);
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
      float w[kSize], b[kSize];
      load_weights(args, args.w, begin, w);
      if (kCentred && args.b.data != nullptr) load_weights(args, args.b, begin, b);
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        const float value = to_float(packs[k].at[i]);
        float y_of = w[i] * ((kCentred ? value - mean : value) * rstd);
        if (kCentred && args.b.data != nullptr) y_of += b[i];
        packs[k].at[i] = from_float<T>(y_of);
      }
      store_row_pack(y, begin, width, aligned, packs[k]);
    }
    mine.first += kCount * mine.step;
  } while (!kFits && mine.first < width);
}

template <bool kCentred>
void norm(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0], &rstd = call.outputs[kCentred ? 2 : 1];
  NormArgs args{.x = x.data,
                .w = AnyFloat(call.inputs[1]),
                .b = call.inputs.size() > 2 ? AnyFloat(call.inputs[2]) : AnyFloat(),
                .y = y.data,
                .mean = kCentred ? call.outputs[1].as<float>() : nullptr,
                .rstd = rstd.as<float>(),
                .rows = rstd.count(),
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
    args.aligned = packs * kPack<T> == args.width && is_aligned(y.data, 16) &&
                   args.w.is_aligned_to(kPack<T>) && args.b.is_aligned_to(kPack<T>);
    const auto kernel = !fits      ? norm_kernel<T, 2, false, kCentred>
                        : is_short ? norm_kernel<T, 2, true, kCentred>
                                   : norm_kernel<T, 4, true, kCentred>;
    launch(call, {.blocks = plan.blocks(args.rows), .threads = plan.threads()}, kernel, args);
  });
}

// --- gradient: the arguments of norm_grad_kernel() and norm_grad_long_rows_kernel() -----------
struct GradientArgs {
  const void *dy, *x;
  AnyFloat w, mean, rstd;
  void* dx;         // may be dy's storage; nullptr: not needed
  float* partials;  // of dw [blocks, width]; centred, as many of db behind; nullptr: not needed
  std::int64_t rows, width, rows_per_block;
  float inverse_width;
  int lanes, teams;
};

// The width of the widest rows that a block keeps in registers.
constexpr int kWidest = 8192;
// The elements of a row that a thread holds, in packs of N. Single elements take an address each.
template <int N>
constexpr int kHeld = N > 1 ? 16 : 8;
// The threads of a block that works on several rows at a time.
constexpr int kTeamThreads = 256;

// A thread's part of dy and x: packs of N elements, `lanes` packs apart.
template <class T, int N>
struct Held {
  static constexpr int kPacks = kHeld<N> / N;

  RowPack<T, N> dy[kPacks], x[kPacks];

  // Loads the thread's elements of a row: `packs` packs that begin `at` elements after `block`.
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

  // Returns Σ dy·w·normed with normed = (x - mean)·rstd, and adds dy·normed to dw. If kCentred,
  // also sets of_dy to Σ dy·w and adds dy to db. Elements after the end of the row have dy = 0.
  template <bool kCentred>
  __device__ float add(float mean, float rstd, const float (&w)[kHeld<N>], float (&dw)[kHeld<N>],
                       float* db, float* of_dy) const {
    float sums[kPacks], plain[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      float dys[N], normed[N];
      dy[k].floats(dys);
      x[k].floats(normed);
      sums[k] = plain[k] = 0.0f;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if constexpr (kCentred) {
          normed[i] -= mean;
          db[k * N + i] += dys[i];
          plain[k] += dys[i] * w[k * N + i];
        }
        normed[i] *= rstd;
        dw[k * N + i] += dys[i] * normed[i];
        sums[k] += dys[i] * w[k * N + i] * normed[i];
      }
    }
    if constexpr (kCentred) *of_dy = sum_in_pairs<kPacks>(plain);
    return sum_in_pairs<kPacks>(sums);
  }

  // Stores dx. `inner`, `of_dy`: the means of dy·w·normed and of dy·w over the row; without
  // kCentred, the second and `mean` are 0.
  template <bool kCentred>
  __device__ void store_dx(const GradientArgs& args, std::int64_t block, int at, int packs,
                           float mean, float rstd, const float (&w)[kHeld<N>], float inner,
                           float of_dy) const {
    T* dx = static_cast<T*>(args.dx) + block + at;
    const float factor = rstd * inner;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      float out[N], xs[N];
      dy[k].floats(out);
      x[k].floats(xs);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        out[i] *= w[k * N + i];
        if constexpr (kCentred) {
          out[i] -= of_dy;
          xs[i] -= mean;
        }
        out[i] = (out[i] - xs[i] * factor) * rstd;
      }
      if (k < packs) RowPack<T, N>::rounded(out).store(dx + k * args.lanes * N);
    }
  }
};

// Sums several values over the lanes of a row with one barrier. `scratch`: kWarp of each value.
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

// Writes the block's row of `partials`: the sums of dw (or db) of all its teams, added up.
template <int N>
__device__ void store_partials(const GradientArgs& args, float* partials,
                               const float (&dw)[kHeld<N>], int team, int lane) {
  alignas(32) __shared__ float sums[kTeamThreads * kHeld<N>];  // [teams, held]
  const int width = static_cast<int>(args.width), held = kHeld<N> * args.lanes;
  float* out = partials + blockIdx.x * args.width;
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

// Computes gradients by teams of `lanes` threads, which take the block's rows in turn. With packs,
// a team loads its next rows meanwhile. It works on kTogether rows at once: rows of 16-bit elements
// have half the bytes, so two of them keep as many bytes in flight as one row of float32, with half
// as many waits for a sum.
template <class T, int N, bool kCentred, int kTogether = 1>
__global__ void __launch_bounds__(kWidest / kHeld<N>)
    norm_grad_kernel(Predecessors before, GradientArgs args) {
  before.wait();
  constexpr bool kAhead = N > 1;
  // With kCentred, sums of dy·w follow those of dy·w·normed.
  constexpr int kSums = kCentred ? 2 * kTogether : kTogether;
  __shared__ float scratch[2][kSums][kWarp], rstds[NormGradPlan::kMostRows],
      means[kCentred ? NormGradPlan::kMostRows : 1];
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
    if constexpr (kCentred) means[row] = args.mean.at(first_row + row);
  }
  const auto mean_of = [&](int row) { return kCentred ? means[row] : 0.0f; };
  float w[kHeld<N>], dw[kHeld<N>], db[kCentred ? kHeld<N> : 1] = {};
#pragma unroll
  for (int i = 0; i < kHeld<N>; ++i) {
    const int column = (i / N * args.lanes + lane) * N + i % N;
    w[i] = column < width ? args.w.at(column) : 0.0f;
    dw[i] = 0.0f;
  }
  __syncthreads();  // the statistics of all rows are there
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
    float inner[kSums];
#pragma unroll
    for (int r = 0; r < kTogether; ++r) {
      const int at = row + r * args.teams;
      inner[r] = own[r].template add<kCentred>(at < rows ? mean_of(at) : 0.0f,
                                               at < rows ? rstds[at] : 0.0f, w, dw, db,
                                               inner + kSums - kTogether + r);
    }
    sum_lanes(inner, args.lanes, first_warp, scratch[turn]);
    if (args.dx == nullptr) continue;
#pragma unroll
    for (int r = 0; r < kTogether; ++r) {
      const int at = row + r * args.teams;
      if (at >= rows) continue;
      own[r].template store_dx<kCentred>(
          args, block, first + at * width, packs, mean_of(at), rstds[at], w,
          inner[r] * args.inverse_width,
          kCentred ? inner[kSums - kTogether + r] * args.inverse_width : 0.0f);
    }
  }
  if (args.partials == nullptr) return;
  store_partials<N>(args, args.partials, dw, team, lane);
  if constexpr (kCentred) {
    __syncthreads();  // the sums of dw have been read
    store_partials<N>(args, args.partials + gridDim.x * args.width, db, team, lane);
  }
}

// Computes gradients of rows of any width: a block reads a row twice; dw, db sum in global memory.
template <class T, bool kCentred>
__global__ void __launch_bounds__(kMostThreads)
    norm_grad_long_rows_kernel(Predecessors before, GradientArgs args) {
  before.wait();
  constexpr int kSums = kCentred ? 2 : 1;
  __shared__ float scratch[2][kSums][kWarp];
  const std::int64_t begin = blockIdx.x * args.rows_per_block;
  const std::int64_t end = ::min(begin + args.rows_per_block, args.rows);
  float* dw = args.partials + blockIdx.x * args.width;
  float* db = dw + gridDim.x * args.width;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* dy = static_cast<const T*>(args.dy) + row * args.width;
    const T* x = static_cast<const T*>(args.x) + row * args.width;
    T* dx = static_cast<T*>(args.dx) + row * args.width;
    const float rstd = args.rstd.at(row), mean = kCentred ? args.mean.at(row) : 0.0f;
    float sums[kSums] = {};  // the sums of dy·w·normed, then those of dy·w
    for (std::int64_t i = threadIdx.x; i < args.width; i += blockDim.x) {
      const float of_dy = to_float(dy[i]), term = of_dy * ((to_float(x[i]) - mean) * rstd);
      sums[0] += term * args.w.at(i);
      if constexpr (kCentred) sums[1] += of_dy * args.w.at(i);
      if (args.partials == nullptr) continue;
      dw[i] = row == begin ? term : dw[i] + term;
      if constexpr (kCentred) db[i] = row == begin ? of_dy : db[i] + of_dy;
    }
    sum_lanes(sums, args.lanes, 0, scratch[(row - begin) % 2]);
    if (args.dx == nullptr) continue;
    const float inner = sums[0] * args.inverse_width;
    const float of_sum = kCentred ? sums[kSums - 1] * args.inverse_width : 0.0f;
    for (std::int64_t i = threadIdx.x; i < args.width; i += blockDim.x) {
      const float normed = (to_float(x[i]) - mean) * rstd;
      dx[i] = from_float<T>((to_float(dy[i]) * args.w.at(i) - of_sum - normed * inner) * rstd);
    }
  }
}

template <bool kCentred>
void norm_grad(const KernelCall& call) {
  const TensorRef &dy = call.inputs[0], &x = call.inputs[1];
  const TensorRef &dx = call.outputs[0], &dw = call.outputs[1];
  const TensorRef db = kCentred ? call.outputs[2] : TensorRef{};
  const std::int64_t rows = call.inputs[3].count(), width = x.shape.back();
  if (width == 0) return;
  const NormGradPlan plan = plan_norm_grad(rows, width);
  auto* partials = reinterpret_cast<float*>(call.workspace.data());
  GradientArgs args{.dy = dy.data,
                    .x = x.data,
                    .w = AnyFloat(call.inputs[2]),
                    .mean = kCentred ? AnyFloat(call.inputs[3]) : AnyFloat(),
                    .rstd = AnyFloat(call.inputs[kCentred ? 4 : 3]),
                    .dx = dx.data,
                    .partials = dw.data != nullptr || db.data != nullptr ? partials : nullptr,
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
    auto kernel = norm_grad_long_rows_kernel<T, kCentred>;
    if (width <= kWidest) {
      const int held = packed ? kHeld<kPack<T>> : kHeld<1>;
      args.lanes = plan_rows(ceil_div(width, held), 1, static_cast<unsigned>(kWidest / held)).lanes;
      args.teams = std::max(1, kTeamThreads / args.lanes);
      threads = static_cast<unsigned>(args.teams * args.lanes);
      // If a row takes the whole block, working on two costs more in registers than it saves; with
      // sums for both dw and db there are no registers for a second row at all.
      constexpr int kTogether = kCentred ? 1 : static_cast<int>(4 / sizeof(T));
      const bool together = kTogether > 1 && args.lanes < kTeamThreads;
      kernel = !packed    ? norm_grad_kernel<T, 1, kCentred>
               : together ? norm_grad_kernel<T, kPack<T>, kCentred, kTogether>
                          : norm_grad_kernel<T, kPack<T>, kCentred>;
    }
    launch(call, {.blocks = static_cast<unsigned>(plan.parts), .threads = threads}, kernel, args);
  });
  if (dw.data != nullptr) combine_partials<Plus>(call, partials, plan.parts, dw);
  if (db.data != nullptr)
    combine_partials<Plus>(call, partials + plan.parts * width, plan.parts, db);
}

}  // namespace

void add_norm_kernels(KernelTable& table) {
  table.add("rms_norm", norm<false>);
  table.add("rms_norm_grad", norm_grad<false>);
  table.add("layer_norm", norm<true>);
  table.add("layer_norm_grad", norm_grad<true>);
}

}  // namespace tracestep::cuda
