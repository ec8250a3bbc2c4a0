// The 16-bit element types of device code.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace tracestep::cuda {

using BF16 = __nv_bfloat16;
using F16 = __half;

}  // namespace tracestep::cuda
