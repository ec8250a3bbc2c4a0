#include <algorithm>
#include <memory>

#include "backends/cuda/ceilings.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/maps/random_fill.h"
#include "backends/cuda/products/gemm.h"
#include "backends/cuda/toolkit/events.h"
#include "planning/cuda_plans.h"
#include "record/recorder.h"

namespace tracestep {
namespace cuda {
namespace {

constexpr int kThreads = 512;

__global__ void empty_kernel() {}

// Copies packs of 16 bytes; each thread has four in flight.
__global__ void copy_packs(const uint4* x, uint4* y, std::int64_t packs) {
  const std::int64_t block = std::int64_t{kThreads} * 4;
  for (std::int64_t first = blockIdx.x * block + threadIdx.x; first < packs;
       first += gridDim.x * block) {
    uint4 held[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (first + i * kThreads < packs) held[i] = __ldcs(x + first + i * kThreads);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (first + i * kThreads < packs) __stcs(y + first + i * kThreads, held[i]);
    }
  }
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Owns a block of device memory.
class Block {
 public:
  Block(Device& device, std::int64_t bytes)
      : device_(device), data_(device.allocator().allocate(bytes, {.label = "ceilings"})) {}
  ~Block() { device_.allocator().free(data_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  void* data() const { return data_; }

 private:
  Device& device_;
  void* data_;
};

const CudaStream& cuda_stream(Device& device) {
  return *static_cast<const CudaStream*>(device.stream());
}

void fill(Device& device, const Block& block, std::int64_t count, DType dtype) {
  fill_random(cuda_stream(device), block.data(), count, dtype);
}

GemmProblem square(std::int64_t size, DType dtype) {
  GemmProblem p;
  p.m = p.n = p.k = p.a_leading = p.b_leading = size;
  p.b_transposed = true;
  p.dtype = dtype;
  if (is_float8(dtype)) p.scaled = GemmProblem::Scaled{.b_dtype = dtype, .y_dtype = DType::kBF16};
  return p;
}

double product_tflops(Device& device, const CudaProductCeiling& ceiling) {
  const std::int64_t size = ceiling.size;
  const DType dtype = ceiling.operands();
  const std::int64_t bytes = size * size * static_cast<std::int64_t>(size_of(dtype));
  const Block a(device, bytes), b(device, bytes), y(device, 2 * bytes);  // y may be wider
  const Block workspace(device, kCudaGemmWorkspaceBytes);
  fill(device, a, size * size, dtype);
  fill(device, b, size * size, dtype);
  GemmOptions options;
  options.tf32 = ceiling.precision.tf32;
  Gemm gemm(cuda_stream(device), options, kCudaGemmWorkspaceBytes, "");
  const Gemm::Product& product = gemm.prepare(square(size, dtype));
  const auto marks = device.make_marks(2);
  std::vector<double> times;
  for (int i = 0; i < 8; ++i) {
    marks->set(0);
    gemm.multiply(product, a.data(), b.data(), y.data(), workspace.data());
    marks->set(1);
    const auto ns = static_cast<double>(marks->between_ns(0, 1));
    if (i > 2) times.push_back(ns);
  }
  const auto flops =
      2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
  return flops / median(times) * 1e-3;
}

}  // namespace
}  // namespace cuda

double measure_cuda_copy_gb_s(Device& device, std::int64_t array_bytes, int repeats) {
  const cuda::Block x(device, array_bytes), y(device, array_bytes);
  cuda::fill(device, x, array_bytes / 4, DType::kF32);
  const std::int64_t packs = array_bytes / 16;
  const unsigned blocks = static_cast<unsigned>(
      std::min<std::int64_t>(cuda::ceil_div(packs, cuda::kThreads * 4), std::int64_t{1} << 30));
  const auto marks = device.make_marks(2);
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    marks->set(0);
    cuda::copy_packs<<<blocks, cuda::kThreads, 0, cuda::cuda_stream(device).handle>>>(
        static_cast<const uint4*>(x.data()), static_cast<uint4*>(y.data()), packs);
    TRACESTEP_CUDA(cudaGetLastError());
    marks->set(1);
    times.push_back(static_cast<double>(marks->between_ns(0, 1)));
  }
  return 2.0 * static_cast<double>(array_bytes) / cuda::median(times);
}

double measure_cuda_launch_ns(Device& device, int launches) {
  const cudaStream_t stream = cuda::cuda_stream(device).handle;
  std::vector<double> times;
  for (int round = 0; round < 9; ++round) {
    device.synchronize();
    const std::int64_t start = now_ns();
    for (int i = 0; i < launches; ++i) cuda::empty_kernel<<<1, 32, 0, stream>>>();
    times.push_back(static_cast<double>(now_ns() - start) / launches);
    TRACESTEP_CUDA(cudaGetLastError());
  }
  device.synchronize();
  return cuda::median(times);
}

double measure_cuda_gemm_issue_ns(Device& device, int calls) {
  constexpr std::int64_t kSize = 64;
  const cuda::Block a(device, kSize * kSize * 4), b(device, kSize * kSize * 4),
      y(device, kSize * kSize * 4), workspace(device, kCudaGemmWorkspaceBytes);
  cuda::fill(device, a, kSize * kSize, DType::kF32);
  cuda::fill(device, b, kSize * kSize, DType::kF32);
  cuda::Gemm& gemm = *cuda::cuda_stream(device).gemm;
  const cuda::Gemm::Product& product = gemm.prepare(cuda::square(kSize, DType::kF32));
  std::vector<double> times;
  for (int round = 0; round < 9; ++round) {
    device.synchronize();
    const std::int64_t start = now_ns();
    for (int i = 0; i < calls; ++i) {
      gemm.multiply(product, a.data(), b.data(), y.data(), workspace.data());
    }
    times.push_back(static_cast<double>(now_ns() - start) / calls);
  }
  device.synchronize();
  return cuda::median(times);
}

CudaCeilings measure_cuda_ceilings(Device& device) {
  CudaCeilings out;
  out.copy_gb_s = measure_cuda_copy_gb_s(device, std::int64_t{1} << 30);
  out.launch_ns = measure_cuda_launch_ns(device);
  out.gemm_issue_ns = measure_cuda_gemm_issue_ns(device);
  constexpr Precision kPrecisions[] = {{},
                                       {.tf32 = true},
                                       {.autocast = DType::kBF16},
                                       {.autocast = DType::kF16},
                                       {.autocast = DType::kBF16, .float8 = true}};
  const bool has_float8 = cuda::cuda_stream(device).compute_capability >= cuda::kLeastWithFloat8;
  for (const Precision& precision : kPrecisions) {
    if (precision.float8 && !has_float8) continue;
    for (std::int64_t size : {4096, 8192}) {
      CudaProductCeiling product{precision, size};
      product.tflops = cuda::product_tflops(device, product);
      out.products.push_back(product);
    }
  }
  return out;
}

Ceilings ceilings_in(const Precision& precision, const CudaCeilings& measured) {
  Ceilings out;
  out.bandwidth_gb_s = measured.copy_gb_s;
  const auto keep = [&](DType dtype, double tflops) {
    double& best = out.products_gflops[dtype];
    best = std::max(best, tflops * 1e3);
  };
  for (const CudaProductCeiling& p : measured.products) {
    const bool is_float32 = p.operands() == DType::kF32, is_tf32 = p.precision.tf32;
    if (is_float32 && !is_tf32) {
      out.arithmetic_gflops = std::max(out.arithmetic_gflops, p.tflops * 1e3);
    }
    if (!is_float32 || is_tf32 == precision.tf32) keep(p.operands(), p.tflops);
    if (is_float8(p.operands())) keep(DType::kF8E5M2, p.tflops);  // of gradients
    if (precision.split && p.operands() == DType::kF16) keep(DType::kF32, p.tflops / 3);
  }
  out.how =
      "copy of arrays of 1 GiB; square products of random numbers through the library, the best of "
      "4096 and 8192; arithmetic outside products: the float32 product";
  return out;
}

double roof_tflops_in(const Precision& precision, const CudaCeilings& measured) {
  // bf16 counts as bf16-pure; a float32 product by parts takes three products of float16.
  const DType operands = precision.split ? DType::kF16 : CudaProductCeiling{precision}.operands();
  double best = 0.0;
  for (const CudaProductCeiling& product : measured.products) {
    const bool is_same = product.operands() == operands && product.precision.tf32 == precision.tf32;
    if (is_same) best = std::max(best, product.tflops);
  }
  return precision.split ? best / 3 : best;
}

}  // namespace tracestep
