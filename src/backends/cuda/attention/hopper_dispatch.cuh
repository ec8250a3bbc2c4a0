// Finds for a call the kernel that is tuned for its width. The tiles were chosen by timing, see the
// ladder of bench/kernels/attention and docs/flash-attention.md.
#pragma once

#include "backends/cuda/attention/hopper.h"
#include "backends/cuda/attention/hopper_launch.cuh"

namespace tracestep::cuda {

// How the warpgroups of a forward kernel share tiles. Two warpgroups with 128 keys at a time are
// for wide heads, and for so few tiles that each has a multiprocessor to itself. Narrow heads,
// whose exponentials take as long as their products, want more warps: two teams of two for short
// sequences, whose tiles of 128 queries waste less, three warpgroups for long ones.
enum class ForwardForm { kPair, kTeams, kTrio };

template <class T, int kD, bool kCausal, ForwardForm kForm>
struct TunedForward : ForwardTraits<T, kD, 2, 128, kCausal> {};
template <class T, int kD, bool kCausal>
struct TunedForward<T, kD, kCausal, ForwardForm::kTrio>
    : ForwardTraits<T, kD, 3, kD == 80 ? 112 : 128, kCausal> {};
template <class T, int kD, bool kCausal>
struct TunedForward<T, kD, kCausal, ForwardForm::kTeams> : ForwardTraits<T, kD, 2, 64, kCausal> {
  static constexpr int kTeams = 2, kStages = 3;
};

inline ForwardForm forward_form(const AttentionShape& shape) {
  const int width = hopper_attention_width(shape.width);
  const int tiles = shape.batch * shape.heads * ((shape.queries + 127) / 128);
  if (width > 80) return ForwardForm::kPair;
  if (shape.queries <= 2048 && tiles <= multiprocessor_count()) return ForwardForm::kPair;
  if (width == 80) return shape.queries < 512 ? ForwardForm::kPair : ForwardForm::kTrio;
  return shape.queries <= (shape.causal ? 2048 : 1024) ? ForwardForm::kTeams : ForwardForm::kTrio;
}

// The kernel for wide heads: a tile has fewer keys, for which shared memory has room; O replaces Q.
template <class T, int kD, bool kCausal>
struct WideForward : ForwardTraits<T, kD, 2, kD == 192 ? 112 : 80, kCausal> {
  static constexpr int kQStages = 1;
  static constexpr bool kOInQ = true;
};
template <class T, bool kCausal>
struct TunedForward<T, 192, kCausal, ForwardForm::kPair> : WideForward<T, 192, kCausal> {};
template <class T, bool kCausal>
struct TunedForward<T, 256, kCausal, ForwardForm::kPair> : WideForward<T, 256, kCausal> {};

template <class T, int kD, bool kCausal, bool kGroupedHeads>
struct TunedBackward : BackwardTraits<T, kD, kD == 64 ? 128 : 64, kCausal> {
  static constexpr bool kGrouped = kGroupedHeads;
};

template <class T, int kD>
using WindowedForward =
    Windowed<TunedForward<T, kD, true, kD <= 80 ? ForwardForm::kTrio : ForwardForm::kPair>>;

// The kernel for capped scores; a causal one also serves windows.
template <class Traits>
using CappedOf = Capped<std::conditional_t<Traits::kCausal, Windowed<Traits>, Traits>>;

// The kernel for calls of few tiles; a causal one also serves windows.
template <class T, int kD, bool kCausal,
          class Traits = TunedForward<T, kD, kCausal, ForwardForm::kPair>>
using DividedForward = Divided<std::conditional_t<kCausal, Windowed<Traits>, Traits>>;

// The kernel for capped scores by width: at 64, tangents leave three warpgroups too few registers.
template <class T, int kD, bool kCausal>
using CappedForward = CappedOf<TunedForward<T, kD, kCausal,
                                            kD == 64   ? ForwardForm::kTeams
                                            : kD == 80 ? ForwardForm::kTrio
                                                       : ForwardForm::kPair>>;
template <class T, int kD, bool kCausal>
using DividedCappedForward = Divided<CappedOf<TunedForward<T, kD, kCausal, ForwardForm::kPair>>>;

// Calls f(width, causal) with the shape's padded width and its mask as integral constants.
template <class F>
cudaError_t with_tuned_shape(const AttentionShape& shape, F&& f) {
  const auto with_width = [&](auto causal) {
    switch (hopper_attention_width(shape.width)) {
      case 64: return f(std::integral_constant<int, 64>{}, causal);
      case 80: return f(std::integral_constant<int, 80>{}, causal);
      case 96: return f(std::integral_constant<int, 96>{}, causal);
      case 128: return f(std::integral_constant<int, 128>{}, causal);
      case 192: return f(std::integral_constant<int, 192>{}, causal);
      case 256: return f(std::integral_constant<int, 256>{}, causal);
      default: return cudaErrorInvalidValue;
    }
  };
  return shape.causal ? with_width(std::true_type{}) : with_width(std::false_type{});
}

template <class T>
cudaError_t tuned_forward(const AttentionForward& call, const LaunchStream& stream) {
  using enum ForwardForm;
  const ForwardForm form = forward_form(call.shape);
  return with_tuned_shape(call.shape, [&](auto width, auto causal) {
    int* counter = static_cast<int*>(call.workspace);
    const bool is_divided = forward_parts(call.shape) > 1;
    if constexpr (width() <= 192) {  // beyond, the tangents find no registers
      if (call.shape.cap > 0 && is_divided)
        return launch_hopper_forward<DividedCappedForward<T, width(), causal()>>(call, counter,
                                                                                 stream);
    }
    if (call.shape.cap == 0 && is_divided)
      return launch_hopper_forward<DividedForward<T, width(), causal()>>(call, counter, stream);
    if (call.shape.cap > 0)
      return launch_hopper_forward<CappedForward<T, width(), causal()>>(call, counter, stream);
    if constexpr (causal()) {
      if (call.shape.window > 0)
        return launch_hopper_forward<WindowedForward<T, width()>>(call, counter, stream);
    }
    if constexpr (width() == 64) {
      if (form == kTeams)
        return launch_hopper_forward<TunedForward<T, width(), causal(), kTeams>>(call, counter,
                                                                                 stream);
    }
    if constexpr (width() <= 80) {
      if (form == kTrio)
        return launch_hopper_forward<TunedForward<T, width(), causal(), kTrio>>(call, counter,
                                                                                stream);
    }
    return launch_hopper_forward<TunedForward<T, width(), causal(), kPair>>(call, counter, stream);
  });
}

template <class T, int kD, bool kCausal>
cudaError_t tuned_narrow_backward(const AttentionBackward& call, const LaunchStream& stream) {
  using Grouped = TunedBackward<T, kD, kCausal, true>;
  const int parts = backward_parts<Grouped>(call.shape);
  if (call.shape.cap > 0) return launch_hopper_backward<CappedOf<Grouped>>(call, parts, stream);
  if constexpr (kCausal) {
    if (call.documents.starts != nullptr)
      return launch_hopper_backward<Documented<Grouped>>(call, parts, stream);
    if (call.shape.window > 0)
      return launch_hopper_backward<Windowed<Grouped>>(call, parts, stream);
  }
  if (call.shape.group() == 1 && parts == 1)
    return launch_hopper_backward<TunedBackward<T, kD, kCausal, false>>(call, 1, stream);
  return launch_hopper_backward<Grouped>(call, parts, stream);
}

template <class T>
cudaError_t tuned_backward(const AttentionBackward& call, const LaunchStream& stream) {
  return with_tuned_shape(call.shape, [&](auto width, auto causal) {
    if constexpr (width() <= kWidestSummedHead) {
      return tuned_narrow_backward<T, width(), causal()>(call, stream);
    } else {
      using Wide = WideBackwardTraits<T, width(), causal()>;
      if (call.shape.cap > 0) return launch_hopper_wide_backward<CappedOf<Wide>>(call, stream);
      if constexpr (causal()) {
        if (call.documents.starts != nullptr)
          return launch_hopper_wide_backward<Documented<Wide>, Windowed<Wide>>(call, stream);
        if (call.shape.window > 0) return launch_hopper_wide_backward<Windowed<Wide>>(call, stream);
      }
      return launch_hopper_wide_backward<Wide>(call, stream);
    }
  });
}

}  // namespace tracestep::cuda
