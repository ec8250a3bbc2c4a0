// From a call to the kernel that is tuned for its width. The tiles were chosen by timing, see the
// ladder of bench/kernels/attention and docs/flash-attention.md.
#pragma once

#include "backends/cuda/attention/hopper.h"
#include "backends/cuda/attention/hopper_launch.cuh"

namespace tracestep::cuda {

template <class T, int kD, bool kCausal>
struct TunedForward : ForwardTraits<T, kD, kD == 64 ? 3 : 2, kD == 80 ? 192 : 128, kCausal> {
  static constexpr bool kTurns = kD != 128;
};

template <class T, int kD, bool kCausal>
struct TunedBackward : BackwardTraits<T, kD, kD == 64 ? 128 : 64, kCausal> {
  static constexpr bool kLateValues = kD == 64;
  static constexpr bool kEarlyKeys = kD == 64;
};

// Calls f(width, causal) with both as types.
template <class F>
cudaError_t with_tuned_shape(const AttentionShape& shape, F&& f) {
  const auto with_width = [&](auto causal) {
    switch (shape.width) {
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
    return launch_hopper_forward<TunedForward<T, width(), causal()>>(
        call, static_cast<int*>(call.workspace), stream);
  });
}

template <class T>
cudaError_t tuned_backward(const AttentionBackward& call, cudaStream_t stream) {
  return with_tuned_shape(call.shape, [&](auto width, auto causal) {
    return launch_hopper_backward<TunedBackward<T, width(), causal()>>(call, stream);
  });
}

}  // namespace tracestep::cuda
