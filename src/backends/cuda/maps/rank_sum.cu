#include "backends/cuda/maps/rank_sum.h"

#include <algorithm>

#include "backends/cuda/numbers.cuh"
#include "backends/cuda/toolkit/check.h"

namespace tracestep {
namespace cuda {
namespace {

constexpr int kThreads = 256, kBlocks = 132;

template <class T>
__global__ void add_kernel(T* y, const T* a, const T* b, std::int64_t count) {
  const std::int64_t packs = count / kPack<T>, step = std::int64_t{gridDim.x} * blockDim.x,
                     begin = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (std::int64_t i = begin; i < packs; i += step) {
    auto u = load_pack<kPack<T>>(a + i * kPack<T>);
    const auto v = load_pack<kPack<T>>(b + i * kPack<T>);
#pragma unroll
    for (int j = 0; j < kPack<T>; ++j)
      u.at[j] = from_float<T>(to_float(u.at[j]) + to_float(v.at[j]));
    store_pack<kPack<T>>(y + i * kPack<T>, u);
  }
  for (std::int64_t i = packs * kPack<T> + begin; i < count; i += step) {
    y[i] = from_float<T>(to_float(a[i]) + to_float(b[i]));
  }
}

}  // namespace
}  // namespace cuda

void add_on_stream(void* y, const void* a, const void* b, std::int64_t count, DType dtype,
                   void* stream) {
  if (count == 0) return;
  cuda::with_floating(dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t most = (count + 16 * cuda::kThreads - 1) / (16 * cuda::kThreads);
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(most, cuda::kBlocks));
    cuda::add_kernel<T><<<blocks, cuda::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<T*>(y), static_cast<const T*>(a), static_cast<const T*>(b), count);
  });
  TRACESTEP_CUDA(cudaGetLastError());
}

}  // namespace tracestep
