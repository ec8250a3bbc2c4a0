// Dynamic loss scaling (Micikevicius et al. 2018, sec. 3.2): float16 gradients underflow, so
// backward starts from a large factor instead of 1, the optimizer divides by it, and a step whose
// gradients overflowed changes nothing but the factor. All of this is done by nodes on rank-0
// states; the host never branches on them.
#pragma once

#include <cstdint>
#include <string_view>

#include "ir/builder.h"
#include "run/optimizer_options.h"

namespace tracestep {

// The state of the scale: like those of the counts below, rank-0 float32 (exact up to 2^24). The
// code that fills the store must set it to kInitialLossScale; the counts start at zero.
inline constexpr std::string_view kLossScale = "loss_scale";
// The state that counts the good steps in a row.
inline constexpr std::string_view kGoodSteps = "loss_scale.good_steps";
// The state that counts all skipped steps.
inline constexpr std::string_view kSkippedSteps = "loss_scale.skipped_steps";
inline constexpr double kInitialLossScale = 65536.0;
// The lower limit of the scale in training. A factor below 1 would push gradients into underflow
// instead of lifting them out, and gradients that overflow without scaling mean that the run
// diverges, which further halving would only hide.
inline constexpr double kLossScaleFloor = 1.0;

// Returns the state `name` of the program under construction, created if it does not exist yet.
Val loss_scale_state(Builder& b, std::string_view name = kLossScale);

// Updates the three states after a step; `good` (rank-0 bool): no gradient was infinite or NaN.
void update_loss_scale(Builder& b, const LossScaling& options, Val good);

}  // namespace tracestep
