// softmax, its gradient and log-sum-exp over dense rows. Rows of up to 4 packs per thread stay in
// registers; longer ones are read twice. Packs of hidden columns of a causal row are never read.
#include <cmath>
#include <limits>

#include "backends/cuda/kernels.h"
#include "backends/cuda/maps/indices.cuh"
#include "backends/cuda/rows/online_log_sum_exp.cuh"
#include "backends/cuda/rows/row_width.cuh"

namespace tracestep::cuda {
namespace {

// The most threads for a row that does not fit in registers, or for a row of the gradient.
constexpr unsigned kLongRowThreads = 512;

struct SoftmaxArgs {
  const void* x;
  void* y;
  std::int64_t rows, width;
  float sign, c;  // scale * log2(e) = sign * c, c > 0
  bool is_causal;
  RowWidth queries;  // rows of a causal mask
  Indices position;  // of the first query; no data: the last query sees all
  RowPlan plan;
};

// A thread's row, its width and its visible columns. Rows after the last one have no columns.
struct RowOfThread {
  std::int64_t row, width, visible;
  int lane;
};

__device__ std::int64_t query_of(const SoftmaxArgs& args, std::int64_t row) {
  if (row >> 31 != 0) return row % args.queries.value;
  if (args.queries.value >> 31 != 0) return row;
  const auto r = static_cast<std::uint32_t>(row);
  return r - args.queries.row_of(r) * static_cast<std::uint32_t>(args.queries.value);
}

__device__ RowOfThread row_of_thread(const SoftmaxArgs& args) {
  RowOfThread at;
  at.row = args.plan.row();
  at.lane = args.plan.lane();
  at.width = at.row < args.rows ? args.width : 0;
  at.visible = at.width;
  if (args.is_causal) {
    const std::int64_t offset =
        args.position.data != nullptr ? args.position.at(0) : args.width - args.queries.value;
    const std::int64_t seen = query_of(args, at.row) + offset + 1;
    at.visible = seen < 0 ? 0 : seen < at.width ? seen : at.width;
  }
  return at;
}

// Returns the value of hidden columns: 0, or NaN (0/0) in a row without visible columns.
__device__ float value_of_hidden(std::int64_t visible) {
  return visible > 0 ? 0.0f : __int_as_float(0x7fffffff);
}

// Sets e to exp2(x·c - top) for each element of a pack.
template <class T>
__device__ void weights_of(const RowPack<T>& x, float c, float top, float (&e)[kPack<T>]) {
  x.floats(e);
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) e[i] = fast_exp2(fmaf(e[i], c, -top));
}

// Stores a pack of the result, e times `inverse`; hidden columns get `hidden`.
template <bool kWhole, class T>
__device__ void store_weights(T* y, int begin, const RowRange<kWhole>& range, bool as_packs,
                              float (&e)[kPack<T>], float inverse, float hidden) {
  constexpr int kSize = kPack<T>;
  RowPack<T> out = RowPack<T>::filled(from_float<T>(hidden));
  if (begin < range.visible) {
#pragma unroll
    for (int i = 0; i < kSize; ++i) e[i] *= inverse;
    out = RowPack<T>::rounded(e);
    if (begin + kSize > range.visible) {
      out.fill_from(range.visible - begin, from_float<T>(hidden));
    }
  }
  store_row_pack(y, begin, range, as_packs, out);
}

template <class T, int kCount, bool kWhole>
__global__ void __launch_bounds__(kMostThreads)
    softmax_kernel(Predecessors before, SoftmaxArgs args) {
  before.wait();
  constexpr int kSize = kPack<T>;
  __shared__ float scratch[2 * kWarp];
  const RowOfThread at = row_of_thread(args);
  const T* x = static_cast<const T*>(args.x) + at.row * args.width;
  T* y = static_cast<T*>(args.y) + at.row * args.width;
  const int lanes = args.plan.lanes, shift = row_shift<kWhole>(x);
  const int first = at.lane * kSize, step = lanes * kSize;
  const RowRange<kWhole> range(shift, 0, at.visible, at.width);
  RowPack<T> packs[kCount];
  load_row(x - shift, first, step, range, from_float<T>(args.sign * Largest::kNeutral), packs);
  if (args.sign < 0) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) packs[k].negate();
  }
  const float top = lanes_reduce<Largest>(largest_of(packs), lanes, scratch) * args.c;
  float e[kCount][kSize], sums[kCount];
#pragma unroll
  for (int k = 0; k < kCount; ++k) {  // half of a causal mask's packs are hidden: nothing to do
    sums[k] = 0.0f;
    if (first + k * step >= range.visible) continue;
    weights_of(packs[k], args.c, top, e[k]);
    sums[k] = sum_in_pairs<kSize>(e[k]);
  }
  const float total = lanes_reduce<Plus>(sum_in_pairs<kCount>(sums), lanes, scratch + kWarp);
  const float inverse = 1.0f / total, hidden = value_of_hidden(at.visible);
  const bool as_packs = pack_shift(y) == shift;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const int begin = first + k * step;
    if (begin >= range.high) break;
    store_weights(y - shift, begin, range, as_packs, e[k], inverse, hidden);
  }
}

template <class T, bool kWhole>
__global__ void __launch_bounds__(kLongRowThreads, 2)
    softmax_long_rows_kernel(Predecessors before, SoftmaxArgs args) {
  before.wait();
  constexpr int kSize = kPack<T>, kCount = 4;
  __shared__ float scratch[2 * kWarp];
  const RowOfThread at = row_of_thread(args);
  const int lanes = args.plan.lanes;
  const T* x = static_cast<const T*>(args.x) + at.row * args.width;
  T* y = static_cast<T*>(args.y) + at.row * args.width;
  OnlineSum sum = online_sum<kWhole>(x, at.visible, at.width, args.sign, args.c, at.lane, lanes);
  sum.combine(args.c, lanes, scratch);
  const float c = args.sign * args.c, top = sum.top * args.c, inverse = 1.0f / sum.total;
  const float hidden = value_of_hidden(at.visible);
  const int shift = row_shift<kWhole>(x), first = at.lane * kSize, step = lanes * kSize;
  const bool as_packs = pack_shift(y) == shift;
  for (std::int64_t begin = 0; begin < at.width + shift; begin += kCount * step) {
    const RowRange<kWhole> range(shift, begin, at.visible, at.width);
    RowPack<T> packs[kCount];
    load_row(x - shift + begin, first, step, range, T{}, packs);
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      float e[kSize];
      weights_of(packs[k], c, top, e);
      if (first + k * step >= range.high) break;
      store_weights(y - shift + begin, first + k * step, range, as_packs, e, inverse, hidden);
    }
  }
}

void softmax(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0];
  if (y.count() == 0) return;
  const auto scale = static_cast<float>(call.attrs.real("scale"));
  // A scale of 0 still hides -inf: the smallest c makes all other columns equal.
  const float c = std::max(std::abs(scale) * kLog2e, std::numeric_limits<float>::denorm_min());
  const bool is_causal = call.attrs.flag("causal");
  const bool has_position = is_causal && call.inputs.size() > 1;
  SoftmaxArgs args{.x = x.data,
                   .y = y.data,
                   .rows = y.count() / y.shape.back(),
                   .width = y.shape.back(),
                   .sign = scale < 0 ? -1.0f : 1.0f,
                   .c = c,
                   .is_causal = is_causal,
                   .queries = RowWidth(is_causal ? y.shape.back(1) : 1),
                   .position = Indices(has_position ? call.inputs[1] : TensorRef{}),
                   .plan = {}};
  with_floating(y.dtype, [&]<class T>(T) {
    const std::int64_t packs = packs_of_rows<T>(x.data, args.width);
    const bool fits = packs <= 4 * std::int64_t{kMostThreads};
    const auto run = [&]<bool kWhole>(std::bool_constant<kWhole>) {
      // A thread's packs of a short row: more of them where ends of 16-bit rows must be handled
      // apart, so that fewer threads do that.
      constexpr int kShort = kWhole || sizeof(T) == 4 ? 2 : 4;
      const int held = packs <= 2 * kWarp ? kShort : 4;
      args.plan = fits ? plan_rows(packs, held, kMostThreads)
                       : RowPlan{static_cast<int>(kLongRowThreads), 1};
      const auto kernel = !fits       ? softmax_long_rows_kernel<T, kWhole>
                          : held == 4 ? softmax_kernel<T, 4, kWhole>
                                      : softmax_kernel<T, kShort, kWhole>;
      launch(call, {.blocks = args.plan.blocks(args.rows), .threads = args.plan.threads()}, kernel,
             args);
    };
    if (are_whole<T>(args.width, x.data, y.data)) {
      run(std::true_type{});
    } else {
      run(std::false_type{});
    }
  });
}

// --- gradient: the arguments of softmax_grad_kernel() -----------------------------------------
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

// Computes the gradient. kFits: a row is read once, else twice. Packs are aligned in y's rows.
template <class T, int kCount, bool kFits>
__global__ void __launch_bounds__(kLongRowThreads)
    softmax_grad_kernel(Predecessors before, GradientArgs args) {
  before.wait();
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
                    .scale = static_cast<float>(call.attrs.real("scale")),
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

// --- log_sum_exp_kernel() reads each row once ------------------------------------------------
template <class T, bool kWhole>
__global__ void __launch_bounds__(kOnlineThreads, 2)
    log_sum_exp_kernel(Predecessors before, const T* x, T* y, std::int64_t rows, std::int64_t width,
                       RowPlan plan) {
  before.wait();
  __shared__ float scratch[2 * kWarp];
  const std::int64_t row = plan.row(), columns = row < rows ? width : 0;
  const int lane = plan.lane();
  OnlineSum sum =
      online_sum<kWhole>(x + row * width, columns, columns, 1.0f, kLog2e, lane, plan.lanes);
  sum.combine(kLog2e, plan.lanes, scratch);
  if (row >= rows || lane != 0) return;
  y[row] = from_float<T>(width > 0 ? log_of(sum) : Largest::kNeutral);
}

void log_sum_exp(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0];
  const std::int64_t width = x.shape.back(), rows = y.count();
  if (rows == 0) return;
  with_floating(y.dtype, [&]<class T>(T) {
    const bool whole = are_whole<T>(width, x.data);
    const int held = whole ? kOnlinePacks<T, true> : kOnlinePacks<T, false>;
    const RowPlan plan = plan_rows(packs_of_rows<T>(x.data, width), held, kOnlineThreads);
    const auto kernel = whole ? log_sum_exp_kernel<T, true> : log_sum_exp_kernel<T, false>;
    launch(call, {.blocks = plan.blocks(rows), .threads = plan.threads()}, kernel, x.as<const T>(),
           y.as<T>(), rows, width, plan);
  });
}

}  // namespace

void add_softmax_kernels(KernelTable& table) {
  table.add("softmax", softmax);
  table.add("softmax_grad", softmax_grad);
  table.add("log_sum_exp", log_sum_exp);
}

}  // namespace tracestep::cuda
