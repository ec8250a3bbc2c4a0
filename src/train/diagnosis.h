// Explains why training ended with a number that is not finite.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "runtime/store.h"
#include "train/loop.h"
#include "weights/not_finite.h"

namespace tracestep {

// The error that ends a run after `step`. Its message has what is not finite, where that began
// (`cause`, when it was found), the likely reasons, and `last_finite`: the state from which the run
// can be continued.
Error not_finite_error(const TrainOptions& options, const TrainStep& step, const Store& store,
                       const std::optional<NotFinite>& cause, const std::string& last_finite);

}  // namespace tracestep
