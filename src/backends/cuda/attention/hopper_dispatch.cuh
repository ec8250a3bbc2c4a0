// From a call to the kernel that is tuned for its width. The tiles were chosen by timing, see the
// ladder of bench/kernels/attention and docs/flash-attention.md.
#pragma once

#include "backends/cuda/attention/hopper.h"
#include "backends/cuda/attention/hopper_launch.cuh"

namespace tracestep::cuda {

// Long sequences: three warpgroups hide the exponentials of narrow heads best. Short ones: tiles of
// 128 queries waste fewer masked scores and leave fewer multiprocessors idle at the end.
inline constexpr int kShortQueries = 2048;

template <class T, int kD, bool kCausal, bool kShort>
struct TunedForward
    : ForwardTraits<T, kD, !kShort && kD < 96 ? 3 : 2, !kShort && kD == 80 ? 112 : 128, kCausal> {};

template <class T, int kD, bool kCausal>
struct TunedBackward : BackwardTraits<T, kD, kD == 64 ? 128 : 64, kCausal> {};

// Calls f(width, causal) with both as types.
template <class F>
cudaError_t with_tuned_shape(const AttentionShape& shape, F&& f) {
  const auto with_width = [&](auto causal) {
    switch (hopper_width(shape.width)) {
      case 64: return f(std::integral_constant<int, 64>{}, causal);
      case 80: return f(std::integral_constant<int, 80>{}, causal);
      case 96: return f(std::integral_constant<int, 96>{}, causal);
      case 128: return f(std::integral_constant<int, 128>{}, causal);
      default: return cudaErrorInvalidValue;
    }
  };
  return shape.causal ? with_width(std::true_type{}) : with_width(std::false_type{});
}

template <class T>
cudaError_t tuned_forward(const AttentionForward& call, cudaStream_t stream) {
  return with_tuned_shape(call.shape, [&](auto width, auto causal) {
    int* counter = static_cast<int*>(call.workspace);
    if constexpr (width() < 96) {
      if (call.shape.queries > kShortQueries)
        return launch_hopper_forward<TunedForward<T, width(), causal(), false>>(call, counter,
                                                                                stream);
    }
    return launch_hopper_forward<TunedForward<T, width(), causal(), true>>(call, counter, stream);
  });
}

template <class T>
cudaError_t tuned_backward(const AttentionBackward& call, cudaStream_t stream) {
  return with_tuned_shape(call.shape, [&](auto width, auto causal) {
    return launch_hopper_backward<TunedBackward<T, width(), causal()>>(call, stream);
  });
}

}  // namespace tracestep::cuda
