// Ops whose result depends on an element's place in its row or tensor: cumsum, dropout.
#include "backends/cuda/kernels.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/maps/indices.cuh"
#include "backends/cuda/numbers.cuh"
#include "ops/dropout_words.h"

namespace tracestep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kResident = 8;  // blocks of kThreads threads per multiprocessor

// --- cumsum -----------------------------------------------------------------------------------
// The type of sums of elements of type T: float for floats, int64 for integers.
template <class T>
struct SumOf {
  using Type = float;
};
template <>
struct SumOf<std::int64_t> {
  using Type = std::int64_t;
};
template <>
struct SumOf<std::int32_t> {
  using Type = std::int64_t;
};

template <class Sum, class T>
__device__ Sum read_term(T x) {
  if constexpr (std::is_same_v<Sum, float>) {
    return to_float(x);
  } else {
    return static_cast<Sum>(x);
  }
}

template <class T, class Sum>
__device__ T rounded_sum(Sum x) {
  if constexpr (std::is_same_v<Sum, float>) {
    return from_float<T>(x);
  } else {
    return static_cast<T>(x);
  }
}

// Sums along rows. A block takes tiles of kThreads elements of a row in turn: it sums within each
// warp, then adds the warps before, then the tiles before. The order of additions is fixed.
template <class T>
__global__ void __launch_bounds__(kThreads)
    cumsum_kernel(Predecessors before, const T* x, T* y, std::int64_t rows, std::int64_t width,
                  bool from_end) {
  before.wait();
  using Sum = typename SumOf<T>::Type;
  constexpr int kWarps = kThreads / 32;
  __shared__ Sum of_warps[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    Sum carried = 0;
    for (std::int64_t begin = 0; begin < width; begin += kThreads) {
      const std::int64_t j = begin + threadIdx.x;
      const std::int64_t at = row * width + (from_end ? width - 1 - j : j);
      Sum sum = j < width ? read_term<Sum>(x[at]) : Sum{0};
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const Sum left = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum += left;
      }
      if (lane == 31) of_warps[warp] = sum;
      __syncthreads();  // all have written
      Sum earlier = carried, all = carried;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        if (w == warp) earlier = all;
        all += of_warps[w];
      }
      if (j < width) y[at] = rounded_sum<T>(earlier + sum);
      carried = all;
      __syncthreads();  // all have read
    }
  }
}

void cumsum(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0];
  if (y.count() == 0) return;
  const std::int64_t width = y.shape.back(), rows = y.count() / width;
  const bool from_end = call.attrs.flag("reverse");
  const Grid grid{.blocks = blocks_for(call, rows * kThreads, kThreads, kResident),
                  .threads = kThreads};
  const auto run = [&]<class T>(T) {
    launch(call, grid, cumsum_kernel<T>, x.as<const T>(), y.as<T>(), rows, width, from_end);
  };
  if (y.dtype == DType::kI64) return run(std::int64_t{});
  if (y.dtype == DType::kI32) return run(std::int32_t{});
  with_floating(y.dtype, run);
}

// --- dropout ----------------------------------------------------------------------------------
// The arguments of dropout_kernel() besides x and y.
struct Dropped {
  const std::int64_t* batch;  // its number
  std::int64_t stream, count;
  std::uint32_t threshold;
  float scale;
};

// Applies dropout; a thread takes four neighbours, whose random words are one draw. x may be y.
template <class T, bool kPacked>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(Predecessors before, const T* x, T* y, Dropped d) {
  before.wait();
  const std::int64_t groups = (d.count + 3) / 4, stride = std::int64_t{gridDim.x} * kThreads;
  const std::int64_t batch = *d.batch;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < groups;
       i += stride) {
    Pack<T, 4> pack = {};
    if constexpr (kPacked) {
      pack = load_pack<4>(x + 4 * i);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (4 * i + j < d.count) pack.at[j] = x[4 * i + j];
      }
    }
    const Uint32x4 words = ops::dropout_words(d.stream, batch, static_cast<std::uint64_t>(i));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float value = words[j] >= d.threshold ? to_float(pack.at[j]) * d.scale : 0.0f;
      pack.at[j] = from_float<T>(value);
    }
    if constexpr (kPacked) {
      store_pack(y + 4 * i, pack);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (4 * i + j < d.count) y[4 * i + j] = pack.at[j];
      }
    }
  }
}

void dropout(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0];
  const double rate = call.attrs.real("rate");
  const Dropped d{.batch = call.inputs[1].as<const std::int64_t>(),
                  .stream = call.attrs.integer("stream"),
                  .count = y.count(),
                  .threshold = ops::dropout_threshold(rate),
                  .scale = static_cast<float>(ops::dropout_scale(rate))};
  if (d.count == 0) return;
  const Grid grid{.blocks = blocks_for(call, (d.count + 3) / 4, kThreads, kResident),
                  .threads = kThreads};
  with_floating(y.dtype, [&]<class T>(T) {
    const bool is_packed =
        d.count % 4 == 0 && is_aligned(x.data, 4 * sizeof(T)) && is_aligned(y.data, 4 * sizeof(T));
    const auto kernel = is_packed ? dropout_kernel<T, true> : dropout_kernel<T, false>;
    launch(call, grid, kernel, x.as<const T>(), y.as<T>(), d);
  });
}

}  // namespace

void add_sequence_kernels(KernelTable& table) {
  table.add("cumsum", cumsum);
  table.add("dropout", dropout);
}

}  // namespace tracestep::cuda
