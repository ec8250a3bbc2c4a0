// The Hopper family of attention kernels (sm_90a: the copy engine, warpgroup products): 16-bit
// operands of width 17 to 256. Rows start at multiples of 16 bytes where the width is a multiple of
// 8; others are copied to the workspace, and results from there.
// attention.cpp chooses among families; this is what it calls here.
#pragma once

#include "backends/cuda/attention/attention.h"

namespace tracestep::cuda {

// True if the kernels take the dtype, width, sizes and scale; the caller must check alignment.
bool hopper_supports(const AttentionShape& shape);

cudaError_t hopper_forward(const AttentionForward& call, const LaunchStream& stream);
cudaError_t hopper_backward(const AttentionBackward& call, const LaunchStream& stream);

// hopper_forward() and hopper_backward() for one dtype each, compiled in files of their own.
namespace hopper {
cudaError_t forward_bf16(const AttentionForward& call, const LaunchStream& stream);
cudaError_t forward_f16(const AttentionForward& call, const LaunchStream& stream);
cudaError_t backward_bf16(const AttentionBackward& call, const LaunchStream& stream);
cudaError_t backward_f16(const AttentionBackward& call, const LaunchStream& stream);
}  // namespace hopper

}  // namespace tracestep::cuda
