// softmax, its gradient and log-sum-exp over dense rows. Rows of up to 4 packs per thread stay in
// registers; longer ones are read twice. Hidden columns of a causal row are never read.
#include <cmath>
#include <limits>

#include "backends/cuda/indices.cuh"
#include "backends/cuda/kernels.h"
#include "backends/cuda/online.cuh"

namespace tracestep::cuda {
namespace {

// Most threads of a row that does not fit in registers, and of a row of the gradient.
constexpr unsigned kLongRowThreads = 512;

struct SoftmaxArgs {
  const void* x;
  void* y;
  std::int64_t rows, width;
  float sign, c;         // scale * log2(e) = sign * c, c > 0
  std::int64_t queries;  // rows of a causal mask; 0: nothing is hidden
  Indices position;      // of the first query; no data: the last query sees all
  int lanes;
};

// A thread's row, and how much of it there is to read. Rows behind the last one have no columns.
struct RowOfThread {
  std::int64_t row, width, visible;
  int lane;
};

__device__ std::int64_t remainder(std::int64_t a, std::int64_t b) {
  if ((a | b) >> 32 != 0) return a % b;
  return static_cast<std::uint32_t>(a) % static_cast<std::uint32_t>(b);
}

__device__ RowOfThread row_of_thread(const SoftmaxArgs& args) {
  const int rows_per_block = static_cast<int>(blockDim.x) / args.lanes;
  RowOfThread at;
  at.row = std::int64_t{blockIdx.x} * rows_per_block + threadIdx.x / args.lanes;
  at.lane = static_cast<int>(threadIdx.x) % args.lanes;
  at.width = at.row < args.rows ? args.width : 0;
  at.visible = at.width;
  if (args.queries > 0) {
    const std::int64_t offset =
        args.position.data != nullptr ? args.position.at(0) : args.width - args.queries;
    const std::int64_t seen = remainder(at.row, args.queries) + offset + 1;
    at.visible = seen < 0 ? 0 : seen < at.width ? seen : at.width;
  }
  return at;
}

// Behind the visible columns: nothing, or no answer (0/0) where there are none to choose from.
__device__ float value_of_hidden(std::int64_t visible) {
  return visible > 0 ? 0.0f : __int_as_float(0x7fffffff);
}

template <class T, int kCount>
__global__ void __launch_bounds__(kMostThreads) softmax_kernel(SoftmaxArgs args) {
  constexpr int kSize = kPack<T>;
  __shared__ float scratch[2 * kWarp];
  const RowOfThread at = row_of_thread(args);
  const int width = static_cast<int>(at.width), visible = static_cast<int>(at.visible);
  const T* x = static_cast<const T*>(args.x) + at.row * args.width;
  T* y = static_cast<T*>(args.y) + at.row * args.width;
  const int shift = pack_shift(x);
  const Packs<int> mine{at.lane * kSize - shift, args.lanes * kSize};
  Pack<T, kSize> packs[kCount];
  load_row(x, mine, visible, width, true, from_float<T>(args.sign * Largest::kNeutral), packs);
  float e[kCount * kSize];
  float top = Largest::kNeutral;
#pragma unroll
  for (int i = 0; i < kCount * kSize; ++i) {
    e[i] = args.sign * to_float(packs[i / kSize].at[i % kSize]);
    top = maximum(top, e[i]);
  }
  top = lanes_reduce<Largest>(top, args.lanes, scratch) * args.c;
#pragma unroll
  for (int i = 0; i < kCount * kSize; ++i) e[i] = fast_exp2(fmaf(e[i], args.c, -top));
  const float total =
      lanes_reduce<Plus>(sum_in_pairs<kCount * kSize>(e), args.lanes, scratch + kWarp);
  const float inverse = 1.0f / total, hidden = value_of_hidden(visible);
  const bool aligned = pack_shift(y) == shift;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const int begin = mine.first + k * mine.step;
    Pack<T, kSize> out;
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      out.at[i] = from_float<T>(begin + i < visible ? e[k * kSize + i] * inverse : hidden);
    }
    store_row_pack(y, begin, width, aligned, out);
  }
}

template <class T>
__global__ void __launch_bounds__(kLongRowThreads) softmax_long_rows_kernel(SoftmaxArgs args) {
  constexpr int kSize = kPack<T>;
  __shared__ float scratch[2 * kWarp];
  const RowOfThread at = row_of_thread(args);
  const T* x = static_cast<const T*>(args.x) + at.row * args.width;
  T* y = static_cast<T*>(args.y) + at.row * args.width;
  const OnlineSum sum =
      online_sum(x, at.visible, at.width, args.sign, args.c, at.lane, args.lanes, scratch);
  const float top = sum.top * args.c, inverse = 1.0f / sum.total;
  const float hidden = value_of_hidden(at.visible);
  const int shift = pack_shift(x);
  const bool aligned = pack_shift(y) == shift;
  const std::int64_t step = std::int64_t{args.lanes} * kSize;
  for (std::int64_t begin = std::int64_t{at.lane} * kSize - shift; begin < at.width;
       begin += kOnlinePacks * step) {
    Pack<T, kSize> packs[kOnlinePacks];
    load_row(x, Packs<std::int64_t>{begin, step}, at.visible, at.width, true, T{}, packs);
#pragma unroll
    for (int k = 0; k < kOnlinePacks; ++k) {
      const std::int64_t first = begin + k * step;
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        const float v = args.sign * to_float(packs[k].at[i]);
        const float p = fast_exp2(fmaf(v, args.c, -top)) * inverse;
        packs[k].at[i] = from_float<T>(first + i < at.visible ? p : hidden);
      }
      store_row_pack(y, first, at.width, aligned, packs[k]);
    }
  }
}

void softmax(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0];
  if (y.count() == 0) return;
  const auto scale = static_cast<float>(call.node.attrs.real("scale"));
  // A scale of 0 still hides -inf: the smallest c makes all other columns equal.
  const float c = std::max(std::abs(scale) * kLog2e, std::numeric_limits<float>::denorm_min());
  const bool is_causal = call.node.attrs.flag("causal");
  const bool has_position = is_causal && call.inputs.size() > 1;
  SoftmaxArgs args{.x = x.data,
                   .y = y.data,
                   .rows = y.count() / y.shape.back(),
                   .width = y.shape.back(),
                   .sign = scale < 0 ? -1.0f : 1.0f,
                   .c = c,
                   .queries = is_causal ? y.shape.back(1) : 0,
                   .position = Indices(has_position ? call.inputs[1] : TensorRef{}),
                   .lanes = 1};
  with_floating(y.dtype, [&]<class T>(T) {
    const std::int64_t packs = packs_of_rows<T>(x.data, args.width);
    const bool fits = packs <= 4 * std::int64_t{kMostThreads}, is_short = packs <= 2 * kWarp;
    const RowPlan plan = fits ? plan_rows(packs, is_short ? 2 : 4, kMostThreads)
                              : RowPlan{static_cast<int>(kLongRowThreads), 1};
    args.lanes = plan.lanes;
    const auto kernel = !fits      ? softmax_long_rows_kernel<T>
                        : is_short ? softmax_kernel<T, 2>
                                   : softmax_kernel<T, 4>;
    launch(call, {.blocks = plan.blocks(args.rows), .threads = plan.threads()}, kernel, args);
  });
}

// --- gradient ---------------------------------------------------------------------------------
struct GradientArgs {
  const void *dy, *y;
  void* dx;  // may be dy's storage
  std::int64_t rows, width;
  float scale;
  int lanes;
};

template <int kCount, class T>
__device__ float dot(const Pack<T, kPack<T>> (&a)[kCount], const Pack<T, kPack<T>> (&b)[kCount]) {
  constexpr int kSize = kPack<T>;
  float sums[kCount];
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    float products[kSize];
#pragma unroll
    for (int i = 0; i < kSize; ++i) products[i] = to_float(a[k].at[i]) * to_float(b[k].at[i]);
    sums[k] = sum_in_pairs<kSize>(products);
  }
  return sum_in_pairs<kCount>(sums);
}

template <class T>
__device__ Pack<T, kPack<T>> gradient_pack(const Pack<T, kPack<T>>& dy, const Pack<T, kPack<T>>& y,
                                           float inner, float scale) {
  Pack<T, kPack<T>> out;
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    out.at[i] = from_float<T>(scale * ((to_float(dy.at[i]) - inner) * to_float(y.at[i])));
  }
  return out;
}

// kFits: the row is read once, else twice. The packs are aligned in y.
template <class T, int kCount, bool kFits>
__global__ void __launch_bounds__(kLongRowThreads) softmax_grad_kernel(GradientArgs args) {
  using Index = std::conditional_t<kFits, int, std::int64_t>;
  constexpr int kSize = kPack<T>;
  __shared__ float scratch[kWarp];
  const int rows_per_block = static_cast<int>(blockDim.x) / args.lanes;
  const std::int64_t row = std::int64_t{blockIdx.x} * rows_per_block + threadIdx.x / args.lanes;
  const Index width = row < args.rows ? static_cast<Index>(args.width) : 0;
  const T* dy = static_cast<const T*>(args.dy) + row * args.width;
  const T* y = static_cast<const T*>(args.y) + row * args.width;
  T* dx = static_cast<T*>(args.dx) + row * args.width;
  const int shift = pack_shift(y);
  const bool dy_aligned = pack_shift(dy) == shift, dx_aligned = pack_shift(dx) == shift;
  Packs<Index> mine{static_cast<Index>(static_cast<int>(threadIdx.x) % args.lanes * kSize - shift),
                    static_cast<Index>(args.lanes * kSize)};
  Pack<T, kSize> a[kCount], b[kCount];
  float inner = 0.0f;
  const Packs<Index> first = mine;
  do {
    load_row(dy, mine, width, width, dy_aligned, T{}, a);
    load_row(y, mine, width, width, true, T{}, b);
    inner += dot<kCount, T>(a, b);
    mine.first += kCount * mine.step;
  } while (!kFits && mine.first < width);
  inner = lanes_reduce<Plus>(inner, args.lanes, scratch);
  mine = first;
  do {
    if constexpr (!kFits) {
      load_row(dy, mine, width, width, dy_aligned, T{}, a);
      load_row(y, mine, width, width, true, T{}, b);
    }
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      store_row_pack(dx, mine.first + k * mine.step, width, dx_aligned,
                     gradient_pack<T>(a[k], b[k], inner, args.scale));
    }
    mine.first += kCount * mine.step;
  } while (!kFits && mine.first < width);
}

void softmax_grad(const KernelCall& call) {
  const TensorRef &dy = call.inputs[0], &y = call.inputs[1], &dx = call.outputs[0];
  if (dx.count() == 0) return;
  const std::int64_t width = dx.shape.back();
  GradientArgs args{.dy = dy.data,
                    .y = y.data,
                    .dx = dx.data,
                    .rows = dx.count() / width,
                    .width = width,
                    .scale = static_cast<float>(call.node.attrs.real("scale")),
                    .lanes = 1};
  with_floating(dx.dtype, [&]<class T>(T) {
    const std::int64_t packs = packs_of_rows<T>(y.data, width);
    const bool fits = packs <= 4 * std::int64_t{kLongRowThreads}, is_short = packs <= 2 * kWarp;
    const RowPlan plan = plan_rows(packs, is_short ? 2 : 4, kLongRowThreads);
    args.lanes = plan.lanes;
    const auto kernel = !fits      ? softmax_grad_kernel<T, 2, false>
                        : is_short ? softmax_grad_kernel<T, 2, true>
                                   : softmax_grad_kernel<T, 4, true>;
    launch(call, {.blocks = plan.blocks(args.rows), .threads = plan.threads()}, kernel, args);
  });
}

// --- log-sum-exp ------------------------------------------------------------------------------
template <class T>
__global__ void __launch_bounds__(kOnlineThreads)
    log_sum_exp_kernel(const T* x, T* y, std::int64_t rows, std::int64_t width, int lanes) {
  __shared__ float scratch[2 * kWarp];
  const int rows_per_block = static_cast<int>(blockDim.x) / lanes;
  const std::int64_t row = std::int64_t{blockIdx.x} * rows_per_block + threadIdx.x / lanes;
  const std::int64_t columns = row < rows ? width : 0;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const OnlineSum sum =
      online_sum(x + row * width, columns, columns, 1.0f, kLog2e, lane, lanes, scratch);
  if (row >= rows || lane != 0) return;
  y[row] = from_float<T>(width > 0 ? log_of(sum) : Largest::kNeutral);
}

void log_sum_exp(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0];
  const std::int64_t width = x.shape.back(), rows = y.count();
  if (rows == 0) return;
  with_floating(y.dtype, [&]<class T>(T) {
    const RowPlan plan = plan_rows(packs_of_rows<T>(x.data, width), kOnlinePacks, kLongRowThreads);
    launch(call, {.blocks = plan.blocks(rows), .threads = plan.threads()}, log_sum_exp_kernel<T>,
           x.as<const T>(), y.as<T>(), rows, width, plan.lanes);
  });
}

}  // namespace

void add_softmax_kernels(KernelTable& table) {
  table.add("softmax", softmax);
  table.add("softmax_grad", softmax_grad);
  table.add("log_sum_exp", log_sum_exp);
}

}  // namespace tracestep::cuda
