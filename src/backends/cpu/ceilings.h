// The measured upper limits of this machine; every speed is judged as a ratio to one of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/device.h"

namespace tracestep {

// A machine's bandwidth by the tests of the STREAM benchmark (McCalpin 1995). Stores that bypass
// the caches are counted without the read that a plain store needs first.
struct BandwidthCeiling {
  std::int64_t array_bytes = 0;  // The size of one array.
  double copy_gb_s = 0;          // y = x
  double copy_streaming_gb_s = 0;
  double triad_gb_s = 0;  // y = a + s·b
  // Four arrays are read and three of them written in place, as AdamW does.
  double update_gb_s = 0;
};

// A matrix product, compared with a peak that was measured right before and after it.
struct ProductCeiling {
  std::string name;  // "768x3072 forward"
  DType dtype = DType::kF32;
  std::int64_t m = 0, n = 0, k = 0;
  double gflops = 0;
  double peak_gflops = 0;
  double share() const { return gflops / peak_gflops; }
};

struct CpuCeilings {
  int threads = 1;
  std::string simd;       // "AVX2"
  double fma_gflops = 0;  // float32 multiply-add, all threads
  std::vector<BandwidthCeiling> bandwidths;
  std::vector<ProductCeiling> products;
  // Returns the time that products of `dtype` would take at the peak, over the time that they took.
  double weighted_share(DType dtype) const;
};

struct CeilingOptions {
  std::int64_t tokens = 512;  // rows of the products
  int repeats = 5;            // medians of this many runs
  bool with_products = true;
};

// Measures all ceilings. Takes about ten seconds on two cores and up to 1 GiB of the device, which
// is freed afterwards.
CpuCeilings measure_cpu_ceilings(Device& cpu, const CeilingOptions& options = {});

// Measures the bandwidth on four arrays of `array_bytes` each, by the best of `repeats` passes.
BandwidthCeiling measure_bandwidth(Device& cpu, std::int64_t array_bytes, int repeats = 5);

// Measures ceilings, which hold for steps in any precision: a CPU multiplies every dtype in
// float32, and bfloat16 by tiles or pairs where the processor can (bf16_products.h).
Ceilings cpu_ceilings(Device& cpu);

// Measures the multiply-add peak of all threads of the device on operands of this dtype, in
// GFLOP/s, in one run of about 5 to 20 ms.
double measure_fma_gflops(Device& cpu, DType operands = DType::kF32);
// Returns the highest of several runs of measure_fma_gflops().
double best_fma_gflops(Device& cpu, int runs, DType operands = DType::kF32);

}  // namespace tracestep
