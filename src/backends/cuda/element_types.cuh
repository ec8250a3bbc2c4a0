// The 16-bit element types of device code, and float32 from them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace tracestep::cuda {

using BF16 = __nv_bfloat16;
using F16 = __half;

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(BF16 x) {
  return __bfloat162float(x);
}
__device__ inline float to_float(F16 x) {
  return __half2float(x);
}

}  // namespace tracestep::cuda
