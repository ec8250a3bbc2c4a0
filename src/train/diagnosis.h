// Why training ended at a number that is not finite, in words.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "runtime/store.h"
#include "train/loop.h"

namespace tracestep {

// The error that ends a run after `step`: what is not finite, where it began (`cause`, when it was
// found), the reasons whose conditions hold, and `last_finite`, what is left to go on from.
Error not_finite_error(const TrainOptions& options, const TrainStep& step, const Store& store,
                       const std::optional<NotFinite>& cause, const std::string& last_finite);

}  // namespace tracestep
