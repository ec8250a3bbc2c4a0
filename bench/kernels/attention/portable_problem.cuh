// One attention problem for the portable kernels: its operands in any dtype and layout between
// guard zones, filled with random values chosen to break them, and the calls.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "backends/cuda/attention/portable.h"
#include "harness.cuh"

namespace portable {

using namespace tracestep::cuda;
using ladder::check;

enum class Values { kNormal, kLargeLogits, kEqual, kSmallGradient };

struct Case {
  AttentionDType dtype = AttentionDType::kBF16;
  int batch = 1, heads = 1, queries = 1, keys = 1, width = 64;
  bool causal = false;
  Values values = Values::kNormal;
  int layout = 0;  // 0: dense; 1: [batch, rows, heads, width]; 2: rows and start misaligned
  AttentionF32 f32 = AttentionF32::kSplit3;
  float scale = 0;  // 0: 1/sqrt(width)
  int offset = 0;
};

inline int item_bytes(const Case& c) {
  return c.dtype == AttentionDType::kF32 ? 4 : 2;
}

__device__ inline double normal(std::uint64_t seed, std::uint64_t index) {
  const auto mix = [](std::uint64_t z) {
    z += 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  };
  const std::uint64_t a = mix(seed * 0x1000003ULL + 2 * index), b = mix(a + 1);
  const double u = (static_cast<double>(a >> 11) + 1) * 0x1p-53,
               w = static_cast<double>(b >> 11) * 0x1p-53;
  return sqrt(-2 * log(u)) * cospi(2 * w);
}

__device__ inline void put(void* data, std::int64_t at, double x, AttentionDType dtype) {
  if (dtype == AttentionDType::kF32) static_cast<float*>(data)[at] = static_cast<float>(x);
  if (dtype == AttentionDType::kBF16)
    static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(static_cast<float>(x));
  if (dtype == AttentionDType::kF16)
    static_cast<__half*>(data)[at] = __float2half_rn(static_cast<float>(x));
}

__device__ inline double get(const void* data, std::int64_t at, AttentionDType dtype) {
  if (dtype == AttentionDType::kF32) return static_cast<const float*>(data)[at];
  if (dtype == AttentionDType::kBF16)
    return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]);
  return __half2float(static_cast<const __half*>(data)[at]);
}

struct View {
  void* data;
  AttentionStrides strides;
  int batch, heads, rows, width;
  AttentionDType dtype;
};

__device__ inline std::int64_t position(const View& v, std::int64_t index) {
  const std::int64_t d = index % v.width, row = index / v.width % v.rows,
                     head = index / v.width / v.rows % v.heads,
                     b = index / v.width / v.rows / v.heads;
  return b * v.strides.batch + head * v.strides.head + row * v.strides.row + d;
}

static __global__ void fill_kernel(View v, std::uint64_t seed, double scale, bool equal) {
  const std::int64_t count = std::int64_t{v.batch} * v.heads * v.rows * v.width;
  for (std::int64_t i = blockIdx.x * 256LL + threadIdx.x; i < count; i += 256LL * gridDim.x) {
    put(v.data, position(v, i), scale * (equal ? 1.0 : normal(seed, i)), v.dtype);
  }
}

static __global__ void widen_kernel(View v, std::int64_t first, double* to, std::int64_t count) {
  for (std::int64_t i = blockIdx.x * 256LL + threadIdx.x; i < count; i += 256LL * gridDim.x) {
    to[i] = get(v.data, position(v, first + i), v.dtype);
  }
}

// A tensor between guard zones, everything a pattern that is a NaN in each dtype.
struct Tensor {
  Tensor(const Case& c, int rows) {
    const int pad = c.layout == 2 ? 3 : 0, offset = c.layout == 2 ? 1 : 0;
    const std::int64_t row = c.width + pad;
    view = {nullptr, {}, c.batch, c.heads, rows, c.width, c.dtype};
    view.strides = c.layout == 1 ? AttentionStrides{rows * row * c.heads, row, row * c.heads}
                                 : AttentionStrides{rows * row * c.heads + pad, rows * row, row};
    elements = c.batch * (rows * row * c.heads + pad) + offset;
    bytes = elements * item_bytes(c);
    check(cudaMalloc(&memory, bytes + 2 * kGuard), "cudaMalloc");
    poison();
    view.data = static_cast<char*>(memory) + kGuard + offset * item_bytes(c);
  }
  ~Tensor() { cudaFree(memory); }
  Tensor(const Tensor&) = delete;
  void poison() { check(cudaMemset(memory, 0xFF, bytes + 2 * kGuard), "poison"); }
  // Whether all bytes outside the tensor's elements still hold the pattern.
  bool is_guarded() const {
    std::vector<unsigned char> all(bytes + 2 * kGuard);
    check(cudaMemcpy(all.data(), memory, all.size(), cudaMemcpyDeviceToHost), "guard");
    const std::int64_t item = view.dtype == AttentionDType::kF32 ? 4 : 2;
    const std::int64_t start = static_cast<char*>(view.data) - static_cast<char*>(memory);
    for (int b = 0; b < view.batch; ++b)
      for (int h = 0; h < view.heads; ++h)
        for (int r = 0; r < view.rows; ++r)
          std::memset(
              all.data() + start +
                  item * (b * view.strides.batch + h * view.strides.head + r * view.strides.row),
              0xFF, view.width * item);
    return std::all_of(all.begin(), all.end(), [](unsigned char x) { return x == 0xFF; });
  }
  std::vector<unsigned char> bits() const {
    std::vector<unsigned char> all(bytes + 2 * kGuard);
    check(cudaMemcpy(all.data(), memory, all.size(), cudaMemcpyDeviceToHost), "bits");
    return all;
  }
  static constexpr std::int64_t kGuard = 4096;
  View view;
  void* memory = nullptr;
  std::int64_t elements = 0, bytes = 0;
};

struct Problem {
  explicit Problem(const Case& c)
      : c(c),
        q(c, c.queries),
        k(c, c.keys),
        v(c, c.keys),
        o(c, c.queries),
        d_o(c, c.queries),
        dq(c, c.queries),
        dk(c, c.keys),
        dv(c, c.keys) {
    double q_scale = 1, do_scale = 1;
    if (c.values == Values::kLargeLogits)
      q_scale = 1e4 / std::sqrt(c.width) * std::sqrt(c.width) / 3;
    if (c.values == Values::kSmallGradient) do_scale = 1e-6;
    const bool equal = c.values == Values::kEqual;
    fill_kernel<<<256, 256>>>(q.view, 1, q_scale, equal);
    fill_kernel<<<256, 256>>>(k.view, 2, 1, equal);
    fill_kernel<<<256, 256>>>(v.view, 3, 1, false);
    fill_kernel<<<256, 256>>>(d_o.view, 4, do_scale, false);
    const std::int64_t rows = std::int64_t{c.batch} * c.heads * c.queries;
    check(cudaMalloc(&lse, rows * 4 + 512), "lse");
    check(cudaMemset(lse, 0xFF, rows * 4 + 512), "lse");
    shape.dtype = c.dtype;
    shape.batch = c.batch;
    shape.heads = c.heads;
    shape.queries = c.queries;
    shape.keys = c.keys;
    shape.width = c.width;
    shape.scale = c.scale != 0 ? c.scale : static_cast<float>(1 / std::sqrt(c.width));
    shape.causal = c.causal;
    shape.offset = c.offset;
    shape.f32 = c.f32;
    const bool f32 = c.dtype == AttentionDType::kF32;
    const std::int64_t need =
        std::max(f32 ? float32_forward_workspace(shape) : portable_forward_workspace(shape),
                 f32 ? float32_backward_workspace(shape) : portable_backward_workspace(shape));
    check(cudaMalloc(&workspace, need + 256), "workspace");
    check(cudaMemset(workspace, 0xFF, need + 256), "workspace");
    workspace_bytes = need;
  }
  ~Problem() {
    cudaFree(lse);
    cudaFree(workspace);
  }
  void forward() {
    AttentionForward call;
    call.shape = shape;
    call.q = q.view.data, call.k = k.view.data, call.v = v.view.data, call.o = o.view.data;
    call.lse = lse;
    call.q_strides = q.view.strides, call.k_strides = k.view.strides;
    call.v_strides = v.view.strides, call.o_strides = o.view.strides;
    call.workspace = workspace;
    check(c.dtype == AttentionDType::kF32 ? float32_forward(call, nullptr)
                                          : portable_forward(call, nullptr),
          "forward");
  }
  void backward() {
    AttentionBackward call;
    call.shape = shape;
    call.q = q.view.data, call.k = k.view.data, call.v = v.view.data, call.o = o.view.data;
    call.d_o = d_o.view.data, call.lse = lse;
    call.dq = dq.view.data, call.dk = dk.view.data, call.dv = dv.view.data;
    call.q_strides = q.view.strides, call.k_strides = k.view.strides;
    call.v_strides = v.view.strides, call.o_strides = o.view.strides;
    call.do_strides = d_o.view.strides, call.dq_strides = dq.view.strides;
    call.dk_strides = dk.view.strides, call.dv_strides = dv.view.strides;
    call.workspace = workspace;
    check(c.dtype == AttentionDType::kF32 ? float32_backward(call, nullptr)
                                          : portable_backward(call, nullptr),
          "backward");
  }
  Case c;
  Tensor q, k, v, o, d_o, dq, dk, dv;
  float* lse = nullptr;
  void* workspace = nullptr;
  std::int64_t workspace_bytes = 0;
  AttentionShape shape;
};

}  // namespace portable
