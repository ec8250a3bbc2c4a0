// How much memory a piece of code holds at once, exactly: a test executable that uses this has
// counting operators new and delete.
#pragma once

#include <cstddef>
#include <functional>

namespace tracestep::testing {

// The most bytes that `run` had allocated at one time, beyond those that were there before.
std::size_t allocation_peak_of(const std::function<void()>& run);

}  // namespace tracestep::testing
