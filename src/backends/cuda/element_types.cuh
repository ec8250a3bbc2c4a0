// The narrow floating types of device code, and float32 from them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace tracestep::cuda {

using BF16 = __nv_bfloat16;
using F16 = __half;
using F8E4M3 = __nv_fp8_e4m3;
using F8E5M2 = __nv_fp8_e5m2;

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(BF16 x) {
  return __bfloat162float(x);
}
__device__ inline float to_float(F16 x) {
  return __half2float(x);
}
__device__ inline float to_float(F8E4M3 x) {
  return static_cast<float>(x);
}
__device__ inline float to_float(F8E5M2 x) {
  return static_cast<float>(x);
}

}  // namespace tracestep::cuda
