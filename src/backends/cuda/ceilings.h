// The measured upper limits of this GPU and its driver; every speed is judged as a ratio to one of
// them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/precision.h"
#include "runtime/device.h"

namespace tracestep {

// A square matrix product of random values through cuBLASLt.
struct CudaProductCeiling {
  Precision precision;    // The precision: fp32, tf32, bf16, fp16 or fp8.
  std::int64_t size = 0;  // m = n = k
  double tflops = 0;

  DType operands() const {
    return precision.float8 ? DType::kF8E4M3 : precision.autocast.value_or(precision.parameters);
  }
};

struct CudaCeilings {
  // Bytes read and written per second, with arrays far larger than the caches.
  double copy_gb_s = 0;
  double launch_ns = 0;  // The host's time for a launch, in a loop of empty kernels.
  // The host's time for a call of the library, in a loop over one small prepared product.
  double gemm_issue_ns = 0;
  std::vector<CudaProductCeiling> products;
};

// Measures all ceilings. Takes about two seconds and up to 2 GiB of the device, which is freed
// afterwards. `cuda` must come from make_cuda_device().
CudaCeilings measure_cuda_ceilings(Device& cuda);

// Return the ceilings for steps in `precision`, and the TFLOP/s of its products; 0: not measured.
Ceilings ceilings_in(const Precision& precision, const CudaCeilings& measured);
double roof_tflops_in(const Precision& precision, const CudaCeilings& measured);

// Measure one ceiling each: bytes copied in a second, the host's time for a launch, for a product.
double measure_cuda_copy_gb_s(Device& cuda, std::int64_t array_bytes, int repeats = 9);
double measure_cuda_launch_ns(Device& cuda, int launches = 1000);
double measure_cuda_gemm_issue_ns(Device& cuda, int calls = 500);

}  // namespace tracestep
