// greedy_token: one block reads a row of logits, which is in the second-level cache.
#include <limits>

#include "backends/cuda/kernels.h"
#include "backends/cuda/rows/row_packs.cuh"

namespace tracestep::cuda {
namespace {

struct GreedyArgs {
  const void* logits;
  std::int64_t *token, *checked;  // nullptr: nobody reads it
  std::int64_t width;
  bool as_packs;
};

// Returns a key that is larger for larger values, and of equal values for the first; 0 for NaN.
__device__ inline std::uint64_t key_of(float value, std::int64_t index) {
  if (value != value) return 0;
  const std::uint32_t bits = __float_as_uint(value + 0.0f);  // -0 is 0
  const std::uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return std::uint64_t{ordered} << 32 | (0xffffffffu - static_cast<std::uint32_t>(index));
}

template <class T>
__global__ void __launch_bounds__(kMostThreads)
    greedy_token_kernel(Predecessors before, GreedyArgs a) {
  before.wait();
  __shared__ std::uint64_t of_warps[kWarp];
  const T* const row = static_cast<const T*>(a.logits) + std::int64_t{blockIdx.x} * a.width;
  std::uint64_t best = 0;
  bool is_odd = false;
  const auto take = [&](float value, std::int64_t i) {
    best = ::max(best, key_of(value, i));
    is_odd = is_odd || !(fabsf(value) <= std::numeric_limits<float>::max());
  };
  const std::int64_t whole = a.as_packs ? a.width / kPack<T> * kPack<T> : 0;
  constexpr int kAhead = 4, kThreads = static_cast<int>(kMostThreads);
#pragma unroll kAhead
  for (std::int64_t i = std::int64_t{threadIdx.x} * kPack<T>; i < whole; i += kThreads * kPack<T>) {
    float values[kPack<T>];
    RowPack<T>::load(row + i).floats(values);
#pragma unroll
    for (int j = 0; j < kPack<T>; ++j) take(values[j], i + j);
  }
  for (std::int64_t i = whole + threadIdx.x; i < a.width; i += kThreads) take(to_float(row[i]), i);
  const bool is_finite = __syncthreads_or(is_odd) == 0;
  const auto of_warp = [&] {
#pragma unroll
    for (int step = kWarp / 2; step > 0; step /= 2) {
      best = ::max(best, __shfl_xor_sync(~0u, best, step));
    }
  };
  of_warp();
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = best;
  __syncthreads();
  best = of_warps[threadIdx.x % kWarp];
  of_warp();
  if (threadIdx.x != 0) return;
  const std::int64_t token =
      best == 0 ? 0 : 0xffffffffu - static_cast<std::uint32_t>(best & 0xffffffffu);
  if (a.token != nullptr) a.token[blockIdx.x] = token;
  if (a.checked != nullptr) a.checked[blockIdx.x] = is_finite ? token : -1;
}

void greedy_token(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const std::int64_t width = x.shape.back();
  with_floating(x.dtype, [&]<class T>(T) {
    const GreedyArgs a{
        .logits = x.data,
        .token = call.outputs[0].as<std::int64_t>(),
        .checked = call.outputs[1].as<std::int64_t>(),
        .width = width,
        .as_packs = is_aligned(x.data, 16) && (x.count() == width || width % kPack<T> == 0)};
    launch(call, {.blocks = static_cast<unsigned>(x.count() / width), .threads = kMostThreads},
           greedy_token_kernel<T>, a);
  });
}

}  // namespace

void add_greedy_token_kernel(KernelTable& table) {
  table.add("greedy_token", greedy_token);
}

}  // namespace tracestep::cuda
