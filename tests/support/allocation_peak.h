// How much memory a piece of code holds at once and how often it asks for some, exactly: a test
// executable that uses this has counting operators new and delete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace tracestep::testing {

// The most bytes that `run` had allocated at one time, beyond those that were there before.
std::size_t allocation_peak_of(const std::function<void()>& run);

struct HeapCalls {
  std::int64_t allocations = 0, frees = 0;
  friend bool operator==(const HeapCalls&, const HeapCalls&) = default;
};
// How often `run` called operators new and delete, in any thread.
HeapCalls heap_calls_of(const std::function<void()>& run);

}  // namespace tracestep::testing
