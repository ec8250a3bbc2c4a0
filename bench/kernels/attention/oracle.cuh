// Attention by the definition, in float64 and on the device, one head at a time: what the attention
// kernels are checked against. With a rounding after every stored tensor it is the unfused path of
// that dtype, whose error the kernels' is compared with.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace oracle {

enum class Rounding : std::uint8_t { kNone, kF32, kBF16, kF16 };

__device__ inline double rounded(double x, Rounding rounding) {
  switch (rounding) {
    case Rounding::kF32: return static_cast<float>(x);
    case Rounding::kBF16: return __bfloat162float(__float2bfloat16_rn(static_cast<float>(x)));
    case Rounding::kF16: return __half2float(__float2half_rn(static_cast<float>(x)));
    default: return x;
  }
}

// Sums of products are made in float64, those of the unfused float32 path in float32, one by one,
// as its matrix products make them.
__device__ inline double sum_of_products(int n, const double* a, std::int64_t a_step,
                                         const double* b, std::int64_t b_step, Rounding rounding) {
  if (rounding == Rounding::kF32) {
    float sum = 0;
    for (int i = 0; i < n; ++i) {
      sum = fmaf(static_cast<float>(a[i * a_step]), static_cast<float>(b[i * b_step]), sum);
    }
    return sum;
  }
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += a[i * a_step] * b[i * b_step];
  return sum;
}

// One head: tensors are float64 [rows, width], dense; p and ds are [queries, keys].
struct Head {
  const double *q, *k, *v, *d_o;
  double *o, *lse, *dq, *dk, *dv, *p, *ds;
  int queries, keys, width;
  double scale;
  bool causal;
  int offset;  // causal: query i sees keys 0 .. i + offset
  Rounding rounding;
};

// One block a query: the row of probabilities, O, L, and the row of dS.
__global__ void rows_kernel(Head h) {
  const int i = static_cast<int>(blockIdx.x), tid = static_cast<int>(threadIdx.x),
            threads = static_cast<int>(blockDim.x);
  const int last = h.causal ? i + h.offset : h.keys - 1;
  const int visible = last < 0 ? 0 : last < h.keys ? last + 1 : h.keys;
  double* p = h.p + static_cast<std::int64_t>(i) * h.keys;
  double* ds = h.ds + static_cast<std::int64_t>(i) * h.keys;
  for (int j = tid; j < h.keys; j += threads) {
    const double s =
        sum_of_products(h.width, h.q + i * h.width, 1, h.k + j * h.width, 1, h.rounding);
    p[j] = j < visible ? rounded(s * h.scale, h.rounding) : -INFINITY;
  }
  __syncthreads();
  __shared__ double largest, total;
  if (tid == 0) {
    double m = -INFINITY, sum = 0;
    for (int j = 0; j < visible; ++j) m = p[j] > m ? p[j] : m;
    for (int j = 0; j < visible; ++j) sum += exp(p[j] - m);
    largest = m;
    total = sum;
    h.lse[i] =
        rounded(m + log(sum), h.rounding == Rounding::kNone ? Rounding::kNone : Rounding::kF32);
  }
  __syncthreads();
  for (int j = tid; j < h.keys; j += threads) {
    p[j] = j < visible ? rounded(exp(p[j] - largest) / total, h.rounding) : 0;
  }
  __syncthreads();
  for (int d = tid; d < h.width; d += threads) {
    const double sum = sum_of_products(visible, p, 1, h.v + d, h.width, h.rounding);
    h.o[i * h.width + d] = rounded(sum, h.rounding);
  }
  for (int j = tid; j < h.keys; j += threads) {
    const double dp =
        sum_of_products(h.width, h.d_o + i * h.width, 1, h.v + j * h.width, 1, h.rounding);
    ds[j] = rounded(dp, h.rounding);
  }
  __syncthreads();
  __shared__ double dot;
  if (tid == 0) {
    dot = sum_of_products(visible, p, 1, ds, 1, h.rounding);
  }
  __syncthreads();
  for (int j = tid; j < h.keys; j += threads) {
    ds[j] = j < visible ? rounded(p[j] * (ds[j] - dot) * h.scale, h.rounding) : 0;
  }
  __syncthreads();
  for (int d = tid; d < h.width; d += threads) {
    const double sum = sum_of_products(visible, ds, 1, h.k + d, h.width, h.rounding);
    h.dq[i * h.width + d] = rounded(sum, h.rounding);
  }
}

// One block a key, after `rows_kernel`: dK and dV.
__global__ void keys_kernel(Head h) {
  const int j = static_cast<int>(blockIdx.x);
  for (int d = static_cast<int>(threadIdx.x); d < h.width; d += static_cast<int>(blockDim.x)) {
    const double dk = sum_of_products(h.queries, h.ds + j, h.keys, h.q + d, h.width, h.rounding);
    const double dv = sum_of_products(h.queries, h.p + j, h.keys, h.d_o + d, h.width, h.rounding);
    h.dk[j * h.width + d] = rounded(dk, h.rounding);
    h.dv[j * h.width + d] = rounded(dv, h.rounding);
  }
}

inline void run(const Head& head) {
  rows_kernel<<<head.queries, 128>>>(head);
  keys_kernel<<<head.keys, 128>>>(head);
}

}  // namespace oracle
