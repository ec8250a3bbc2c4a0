// The learning rate of each step, and AdamW's step size.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/enum_words.h"

namespace tracestep {

enum class ScheduleKind { kConstant, kCosine };
TRACESTEP_WORDS(ScheduleKind, "constant", "cosine");
// Linear warm-up from 0 over the first `warmup_steps`, then constant, or half a cosine from `lr`
// down to `lr_min` at `total_steps` and `lr_min` after that.
struct Schedule {
  ScheduleKind kind = ScheduleKind::kConstant;
  double lr = 1e-3, lr_min = 0;
  std::int64_t warmup_steps = 0, total_steps = 0;

  // Throws Error{kUsage} for rates that are negative or infinite in float32, for lr_min above lr,
  // and for a warm-up longer than `total_steps`.
  void check() const;
  // The rate at `step` >= 0; 0 at step 0 of a warm-up.
  double at(std::int64_t step) const;
};

// The learning rate of AdamW's update number `t` >= 1 with both bias corrections applied: lr *
// sqrt(1 - beta2^t) / (1 - beta1^t). Source: Kingma and Ba, "Adam", section 2, the efficient form,
// where eps is added to the uncorrected root.
double step_size(double lr, double beta1, double beta2, std::int64_t t);

}  // namespace tracestep
