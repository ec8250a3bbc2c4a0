// What the rungs of the attention ladder share: random inputs, a slow reference in double, a check
// of every element of poisoned results against it, and medians of event timings.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <type_traits>
#include <vector>

#include "backends/cuda/attention/attention.h"

namespace ladder {

using tracestep::cuda::AttentionBackward;
using tracestep::cuda::AttentionDType;
using tracestep::cuda::AttentionForward;
using tracestep::cuda::AttentionShape;
using tracestep::cuda::AttentionStrides;

inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

template <class T>
struct Array {
  explicit Array(std::size_t n) : count(n) {
    check(cudaMalloc(&data, std::max<std::size_t>(n, 1) * sizeof(T)), "cudaMalloc");
  }
  Array(const Array&) = delete;
  ~Array() { cudaFree(data); }
  void poison() { check(cudaMemset(data, 0xff, count * sizeof(T)), "poison"); }  // NaN
  T* data = nullptr;
  std::size_t count;
};

template <class T>
__global__ void fill_normal_kernel(T* x, std::size_t n, std::uint32_t seed, float spread) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x) {
    std::uint64_t h = (i + 1) * 0x9E3779B97F4A7C15ULL + seed * 0xD1B54A32D192ED03ULL;
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93ULL;
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93ULL;
    h ^= h >> 32;
    const float u = (static_cast<float>(h & 0xffffff) + 1.0F) / 16777217.0F;
    const float v = static_cast<float>(h >> 40) / 16777216.0F;
    x[i] = static_cast<T>(spread * sqrtf(-2 * logf(u)) * cospif(2 * v));
  }
}
template <class T>
void fill_normal(Array<T>& x, std::uint32_t seed, float spread = 1.0F) {
  fill_normal_kernel<<<1024, 256>>>(x.data, x.count, seed, spread);
}

// One block per query: everything in double, straight from the definition.
template <class T>
__global__ void reference_forward_kernel(AttentionShape s, const T* q, const T* k, const T* v,
                                         double* o, double* lse) {
  extern __shared__ double scores[];
  const std::int64_t head = blockIdx.x / s.queries;
  const int row = static_cast<int>(blockIdx.x % s.queries);
  const int seen = s.causal ? max(0, min(s.keys, row + 1 + s.offset)) : s.keys;
  const T* qr = q + (head * s.queries + row) * s.width;
  for (int j = threadIdx.x; j < seen; j += blockDim.x) {
    double sum = 0;
    for (int d = 0; d < s.width; ++d)
      sum += double(float(qr[d])) * double(float(k[(head * s.keys + j) * s.width + d]));
    scores[j] = sum * double(s.scale);
  }
  __syncthreads();
  double largest = -INFINITY, total = 0;
  for (int j = 0; j < seen; ++j) largest = fmax(largest, scores[j]);
  for (int j = 0; j < seen; ++j) total += exp(scores[j] - largest);
  for (int d = threadIdx.x; d < s.width; d += blockDim.x) {
    double sum = 0;
    for (int j = 0; j < seen; ++j)
      sum += exp(scores[j] - largest) * double(float(v[(head * s.keys + j) * s.width + d]));
    o[(head * s.queries + row) * s.width + d] = seen > 0 ? sum / total : 0.0;
  }
  if (threadIdx.x == 0) lse[blockIdx.x] = largest + log(total);
}

// One block per query: its share of dK and dV by atomic additions in double, its dQ directly.
template <class T>
__global__ void reference_backward_kernel(AttentionShape s, const T* q, const T* k, const T* v,
                                          const double* o, const double* lse, const T* d_o,
                                          double* dq, double* dk, double* dv) {
  extern __shared__ double ds[];
  const std::int64_t head = blockIdx.x / s.queries;
  const int row = static_cast<int>(blockIdx.x % s.queries);
  const int seen = s.causal ? max(0, min(s.keys, row + 1 + s.offset)) : s.keys;
  const std::int64_t at = (head * s.queries + row) * s.width;
  double delta = 0;
  for (int d = 0; d < s.width; ++d) delta += o[at + d] * double(float(d_o[at + d]));
  for (int j = threadIdx.x; j < seen; j += blockDim.x) {
    const std::int64_t key = (head * s.keys + j) * s.width;
    double score = 0, dp = 0;
    for (int d = 0; d < s.width; ++d) {
      score += double(float(q[at + d])) * double(float(k[key + d]));
      dp += double(float(d_o[at + d])) * double(float(v[key + d]));
    }
    const double p = exp(score * double(s.scale) - lse[blockIdx.x]);
    ds[j] = p * (dp - delta) * double(s.scale);
    for (int d = 0; d < s.width; ++d) {
      atomicAdd(dv + key + d, p * double(float(d_o[at + d])));
      atomicAdd(dk + key + d, ds[j] * double(float(q[at + d])));
    }
  }
  __syncthreads();
  for (int d = threadIdx.x; d < s.width; d += blockDim.x) {
    double sum = 0;
    for (int j = 0; j < seen; ++j)
      sum += ds[j] * double(float(k[(head * s.keys + j) * s.width + d]));
    dq[at + d] = sum;
  }
}

template <class T>
std::vector<double> to_host(const Array<T>& x) {
  std::vector<T> raw(x.count);
  check(cudaMemcpy(raw.data(), x.data, x.count * sizeof(T), cudaMemcpyDeviceToHost), "copy");
  std::vector<double> out(x.count);
  for (std::size_t i = 0; i < x.count; ++i) {
    if constexpr (std::is_same_v<T, double>)
      out[i] = raw[i];
    else
      out[i] = double(float(raw[i]));
  }
  return out;
}

// ||x - y|| / ||y||; a NaN anywhere is a NaN.
inline double relative_error(const std::vector<double>& x, const std::vector<double>& y) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    norm += y[i] * y[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-300));
}

// Milliseconds: the median of `repeats` after three warm-ups.
inline double median_ms(int repeats, const std::function<void()>& run) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  for (int i = 0; i < 3; ++i) run();
  std::vector<float> times(static_cast<std::size_t>(repeats));
  for (float& ms : times) {
    cudaEventRecord(begin);
    run();
    cudaEventRecord(end);
    check(cudaEventSynchronize(end), "timing");
    cudaEventElapsedTime(&ms, begin, end);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

template <class T>
constexpr AttentionDType dtype_of() {
  return std::is_same_v<T, __half> ? AttentionDType::kF16 : AttentionDType::kBF16;
}
inline AttentionStrides contiguous(const AttentionShape& s, int rows) {
  return {std::int64_t{s.heads} * rows * s.width, std::int64_t{rows} * s.width, s.width};
}
inline std::size_t elements(const AttentionShape& s, int rows) {
  return std::size_t(s.batch) * std::size_t(s.heads) * std::size_t(rows) * std::size_t(s.width);
}

}  // namespace ladder
