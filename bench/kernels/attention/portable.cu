// The portable attention kernels alone: `portable check` compares them with float64 and with the
// unfused path of the same dtype, on shapes, strides and values chosen to break them (`portable
// check 99` where blocks have no more than 99 KiB of shared memory); `portable time` prints
// milliseconds and TFLOP/s (4 B H T^2 D forward, 2.5 times that backward, half when causal).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "backends/cuda/attention/portable.h"
#include "oracle.cuh"

namespace {

using namespace tracestep::cuda;

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

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

int item_bytes(const Case& c) {
  return c.dtype == AttentionDType::kF32 ? 4 : 2;
}

__device__ double normal(std::uint64_t seed, std::uint64_t index) {
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

__device__ void put(void* data, std::int64_t at, double x, AttentionDType dtype) {
  if (dtype == AttentionDType::kF32) static_cast<float*>(data)[at] = static_cast<float>(x);
  if (dtype == AttentionDType::kBF16)
    static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(static_cast<float>(x));
  if (dtype == AttentionDType::kF16)
    static_cast<__half*>(data)[at] = __float2half_rn(static_cast<float>(x));
}

__device__ double get(const void* data, std::int64_t at, AttentionDType dtype) {
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

__device__ std::int64_t position(const View& v, std::int64_t index) {
  const std::int64_t d = index % v.width, row = index / v.width % v.rows,
                     head = index / v.width / v.rows % v.heads,
                     b = index / v.width / v.rows / v.heads;
  return b * v.strides.batch + head * v.strides.head + row * v.strides.row + d;
}

__global__ void fill_kernel(View v, std::uint64_t seed, double scale, bool equal) {
  const std::int64_t count = std::int64_t{v.batch} * v.heads * v.rows * v.width;
  for (std::int64_t i = blockIdx.x * 256LL + threadIdx.x; i < count; i += 256LL * gridDim.x) {
    put(v.data, position(v, i), scale * (equal ? 1.0 : normal(seed, i)), v.dtype);
  }
}

__global__ void widen_kernel(View v, std::int64_t first, double* to, std::int64_t count) {
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

struct Oracle {
  std::vector<double> o, lse, dq, dk, dv;
};

std::vector<double> to_host(const double* from, std::int64_t count) {
  std::vector<double> host(count);
  check(cudaMemcpy(host.data(), from, count * 8, cudaMemcpyDeviceToHost), "to_host");
  return host;
}

Oracle run_oracle(const Problem& p, oracle::Rounding rounding) {
  Oracle all;
  const Case& c = p.c;
  const std::int64_t nq = std::int64_t{c.queries} * c.width, nk = std::int64_t{c.keys} * c.width,
                     nn = std::int64_t{c.queries} * c.keys;
  double* memory;
  check(cudaMalloc(&memory, (4 * nq + 4 * nk + 2 * nn + c.queries) * 8), "oracle");
  oracle::Head h{};
  double* next = memory;
  const auto take = [&](std::int64_t n) { return std::exchange(next, next + n); };
  double *q = take(nq), *k = take(nk), *v = take(nk), *d_o = take(nq);
  h.q = q, h.k = k, h.v = v, h.d_o = d_o;
  h.o = take(nq), h.dq = take(nq), h.dk = take(nk), h.dv = take(nk);
  h.p = take(nn), h.ds = take(nn), h.lse = take(c.queries);
  h.queries = c.queries, h.keys = c.keys, h.width = c.width, h.scale = p.shape.scale;
  h.causal = c.causal, h.offset = c.offset, h.rounding = rounding;
  const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (int bh = 0; bh < c.batch * c.heads; ++bh) {
    widen_kernel<<<64, 256>>>(p.q.view, bh * nq, q, nq);
    widen_kernel<<<64, 256>>>(p.k.view, bh * nk, k, nk);
    widen_kernel<<<64, 256>>>(p.v.view, bh * nk, v, nk);
    widen_kernel<<<64, 256>>>(p.d_o.view, bh * nq, d_o, nq);
    oracle::run(h);
    append(all.o, to_host(h.o, nq));
    append(all.lse, to_host(h.lse, c.queries));
    append(all.dq, to_host(h.dq, nq));
    append(all.dk, to_host(h.dk, nk));
    append(all.dv, to_host(h.dv, nk));
  }
  cudaFree(memory);
  return all;
}

// ||x - reference|| / ||reference||; a reference that is zero but for rounding counts as `least`.
double error_of(const std::vector<double>& x, const std::vector<double>& reference, double least) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == reference[i]) continue;  // both may be -infinity
    const double e = x[i] - reference[i];
    error += e * e;
  }
  for (const double r : reference) norm += std::isfinite(r) ? r * r : 0;
  return std::sqrt(error) / std::max(std::sqrt(norm), least * std::sqrt(x.size()));
}

std::vector<double> values_of(const Tensor& t) {
  const View& v = t.view;
  const std::int64_t count = std::int64_t{v.batch} * v.heads * v.rows * v.width;
  double* memory;
  check(cudaMalloc(&memory, count * 8 + 8), "values");
  widen_kernel<<<256, 256>>>(v, 0, memory, count);
  std::vector<double> host = to_host(memory, count);
  cudaFree(memory);
  return host;
}

const char* name_of(const Case& c) {
  return c.dtype == AttentionDType::kBF16  ? "bf16"
         : c.dtype == AttentionDType::kF16 ? "f16 "
         : c.f32 == AttentionF32::kTF32    ? "tf32"
                                           : "f32 ";
}

bool run_check(const Case& c) {
  Problem p(c);
  p.forward();
  p.backward();
  check(cudaDeviceSynchronize(), "kernels");
  const auto rounding = c.dtype == AttentionDType::kBF16  ? oracle::Rounding::kBF16
                        : c.dtype == AttentionDType::kF16 ? oracle::Rounding::kF16
                                                          : oracle::Rounding::kF32;
  const Oracle exact = run_oracle(p, oracle::Rounding::kNone), unfused = run_oracle(p, rounding);
  std::vector<float> lse32(exact.lse.size());
  check(cudaMemcpy(lse32.data(), p.lse, lse32.size() * 4, cudaMemcpyDeviceToHost), "lse");
  const std::vector<double> lse(lse32.begin(), lse32.end());
  const double size = c.values == Values::kSmallGradient ? 1e-6 : 1;
  const auto error = [](const auto& x, const auto& reference, double scale) {
    return error_of(x, reference, scale);
  };
  struct Row {
    const char* name;
    double ours, theirs;
  };
  const Row rows[] = {
      {"O", error(values_of(p.o), exact.o, 1), error(unfused.o, exact.o, 1)},
      {"L", error(lse, exact.lse, 1), error(unfused.lse, exact.lse, 1)},
      {"dQ", error(values_of(p.dq), exact.dq, size), error(unfused.dq, exact.dq, size)},
      {"dK", error(values_of(p.dk), exact.dk, size), error(unfused.dk, exact.dk, size)},
      {"dV", error(values_of(p.dv), exact.dv, size), error(unfused.dv, exact.dv, size)}};
  const bool f32 = c.dtype == AttentionDType::kF32;
  const double floor = c.f32 == AttentionF32::kTF32 && f32 ? 2e-3
                       : f32                               ? 1e-5
                       : c.dtype == AttentionDType::kF16   ? 1e-4
                                                           : 1e-3;
  bool good = true;
  std::printf("%s %dx%dx%d,%d d%d %s v%d l%d:", name_of(c), c.batch, c.heads, c.queries, c.keys,
              c.width, c.causal ? "causal" : "full", static_cast<int>(c.values), c.layout);
  for (const Row& row : rows) {
    // The unfused path may be lucky, but a score of 10,000 has a last bit of 1e-3.
    const bool is_few_bits = f32 && c.values == Values::kLargeLogits && row.name[1] == 'K';
    const bool fine = row.ours <= std::max(2 * row.theirs, is_few_bits ? 3.5e-4 : floor);
    good &= fine;
    std::printf(" %s %.1e/%.1e%s", row.name, row.ours, row.theirs, fine ? "" : " <-- ");
  }
  for (const Tensor* t : {&p.o, &p.dq, &p.dk, &p.dv}) {
    if (!t->is_guarded()) good = false, std::printf(" GUARD");
  }
  const auto o = p.o.bits(), dq = p.dq.bits(), dk = p.dk.bits(), dv = p.dv.bits();
  for (int repeat = 0; repeat < 3; ++repeat) {
    p.o.poison(), p.dq.poison(), p.dk.poison(), p.dv.poison();
    p.forward();
    p.backward();
    if (p.o.bits() != o || p.dq.bits() != dq || p.dk.bits() != dk || p.dv.bits() != dv) {
      good = false, std::printf(" REPEAT");
    }
  }
  std::printf("%s\n", good ? "" : " FAILED");
  return good;
}

double median_ms(const std::function<void()>& work, int repeats) {
  cudaEvent_t start, stop;
  cudaEventCreate(&start), cudaEventCreate(&stop);
  work();
  std::vector<float> times;
  for (int i = 0; i < repeats; ++i) {
    cudaEventRecord(start);
    work();
    cudaEventRecord(stop);
    check(cudaEventSynchronize(stop), "timing");
    float ms;
    cudaEventElapsedTime(&ms, start, stop);
    times.push_back(ms);
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

void run_time(const Case& c) {
  Problem p(c);
  const double flops = 4.0 * c.batch * c.heads * c.queries * static_cast<double>(c.keys) * c.width *
                       (c.causal ? 0.5 : 1);
  const double forward = median_ms([&] { p.forward(); }, 11);
  const double backward = median_ms([&] { p.backward(); }, 11);
  std::printf("%s %2dx%2dx%5d d%3d %s  forward %8.4f ms %6.1f TF  backward %8.4f ms %6.1f TF\n",
              name_of(c), c.batch, c.heads, c.queries, c.width, c.causal ? "causal" : "full  ",
              forward, flops / forward * 1e-9, backward, 2.5 * flops / backward * 1e-9);
}

std::vector<Case> check_cases() {
  std::vector<Case> cases;
  const auto bf16 = AttentionDType::kBF16, f16 = AttentionDType::kF16, f32 = AttentionDType::kF32;
  for (const AttentionDType dtype : {bf16, f16, f32}) {
    for (const int width : {16, 32, 64, 80, 96, 128, 256}) {
      cases.push_back({dtype, 1, 2, 300, 300, width, true});
      cases.push_back({dtype, 2, 1, 257, 384, width, false});
    }
    for (const int width : {1, 7, 59, 111, 200})
      cases.push_back({dtype, 1, 2, 131, 131, width, true});
    for (const int rows : {150, 227, 304}) {
      for (const int width : {16, 32, 64, 80, 128}) {
        for (const bool causal : {false, true}) {
          cases.push_back({dtype, 2, 2, rows, rows, width, causal, Values::kLargeLogits});
        }
      }
    }
    for (const bool causal : {false, true}) {
      cases.push_back({dtype, 2, 3, 1, 1, 64, causal});
      cases.push_back({dtype, 1, 2, 1, 197, 64, causal});
      cases.push_back({dtype, 1, 2, 197, 1, 64, causal});
      cases.push_back({dtype, 1, 1, 101, 499, 80, causal});
      cases.push_back({dtype, 1, 1, 499, 101, 128, causal});
      cases.push_back({dtype, 1, 2, 150, 150, 32, causal, Values::kEqual});
      cases.push_back({dtype, 1, 2, 150, 150, 64, causal, Values::kSmallGradient});
      cases.push_back({dtype, 2, 3, 150, 150, 64, causal, Values::kNormal, 1});
      cases.push_back({dtype, 2, 3, 150, 133, 64, causal, Values::kNormal, 2});
      cases.push_back({dtype, 1, 2, 133, 150, 128, causal, Values::kNormal, 2});
    }
    for (const int offset : {60, -60}) {
      Case c{dtype, 1, 2, 200, 200 + offset, 64, true};
      c.offset = offset;
      cases.push_back(c);
      c.width = 128;
      cases.push_back(c);
    }
    cases.push_back({dtype, 1, 1, 1024, 1024, 64, true});
    cases.push_back({dtype, 1, 1, 1024, 1024, 128, false});
    cases.push_back(
        {dtype, 1, 1, 200, 200, 64, true, Values::kNormal, 0, AttentionF32::kSplit3, -0.3F});
  }
  for (const int width : {16, 64, 128, 256}) {
    cases.push_back({f32, 1, 2, 300, 300, width, true, Values::kNormal, 0, AttentionF32::kTF32});
  }
  cases.push_back({f32, 1, 2, 150, 150, 64, true, Values::kSmallGradient, 0, AttentionF32::kTF32});
  return cases;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "check";
  if (argc > 2) limit_portable_shared_memory(std::atoi(argv[2]) * 1024);
  if (mode == "check") {
    int failed = 0;
    for (const Case& c : check_cases()) failed += !run_check(c);
    std::printf("%d failed\n", failed);
    return failed != 0;
  }
  const auto bf16 = AttentionDType::kBF16, f32 = AttentionDType::kF32;
  for (const bool causal : {true, false}) {
    run_time({bf16, 1, 32, 16384, 16384, 64, causal});
    run_time({bf16, 1, 16, 16384, 16384, 128, causal});
    run_time({bf16, 8, 32, 2048, 2048, 64, causal});
    run_time({bf16, 8, 16, 2048, 2048, 128, causal});
  }
  run_time({bf16, 32, 32, 512, 512, 64, true});
  run_time({bf16, 2, 32, 8192, 8192, 80, true});
  run_time({bf16, 2, 8, 8192, 8192, 256, true});
  for (const int width : {16, 32, 64, 80, 128, 256})
    run_time({f32, 8, 1, 16384, 16384, width, true});
  for (const int width : {64, 128}) {
    run_time({f32, 8, 1, 16384, 16384, width, true, Values::kNormal, 0, AttentionF32::kTF32});
    run_time({f32, 8, 1, 4096, 4096, width, true});
  }
  return 0;
}
