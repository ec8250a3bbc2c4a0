#include "backends/cuda/maps/random_fill.h"

#include "backends/cuda/numbers.cuh"
#include "backends/cuda/toolkit/check.h"

namespace tracestep::cuda {
namespace {

template <class T>
__global__ void fill_kernel(T* x, std::int64_t count) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    std::uint32_t h = static_cast<std::uint32_t>(i) * 0x9e3779b9u + 0x7f4a7c15u;
    h = (h ^ (h >> 16)) * 0x85ebca6bu;
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    h ^= h >> 16;
    x[i] = from_float<T>(static_cast<float>(h >> 8) * 0x1p-23f - 1.0f);
  }
}

// Fills x with the values that the host would make; a thread makes four, from one random draw.
template <class T>
__global__ void fill_uniform_kernel(T* x, std::int64_t count, UniformValues values) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  std::int64_t group = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; 4 * group < count; group += step) {
    const Uint32x4 words = words_of(values, static_cast<std::uint64_t>(group));
    for (int k = 0; k < 4; ++k) {
      const std::int64_t i = 4 * group + k;
      if (i < count) x[i] = from_float<T>(static_cast<float>(value_of(values, words[k])));
    }
  }
}

}  // namespace

void fill_random(const CudaStream& stream, void* data, std::int64_t count, DType dtype) {
  if (!is_floating(dtype) || count == 0) return;
  const unsigned blocks = static_cast<unsigned>(stream.multiprocessors) * 4;
  const auto fill = [&](auto zero) {
    using T = decltype(zero);
    fill_kernel<T><<<blocks, 256, 0, stream.handle>>>(static_cast<T*>(data), count);
  };
  switch (dtype) {
    case DType::kF8E4M3: fill(F8E4M3()); break;
    case DType::kF8E5M2: fill(F8E5M2()); break;
    default: with_floating(dtype, fill);
  }
  TRACESTEP_CUDA(cudaGetLastError());
}

bool fill_uniform(const CudaStream& stream, void* data, std::int64_t count, DType dtype,
                  const UniformValues& values) {
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) return false;
  if (count == 0) return true;
  const unsigned blocks = static_cast<unsigned>(stream.multiprocessors) * 8;
  with_floating(dtype, [&](auto zero) {
    using T = decltype(zero);
    fill_uniform_kernel<T><<<blocks, 256, 0, stream.handle>>>(static_cast<T*>(data), count, values);
  });
  TRACESTEP_CUDA(cudaGetLastError());
  return true;
}

}  // namespace tracestep::cuda
