// Interprets the limit of memory of a run (Place::memory_limit_bytes). A number of bytes makes its
// device a smaller one, and never a larger: what the machine has free is looked at beside it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "run/run_spec.h"

namespace tracestep {

// No number of bytes: the machine is not asked whether it has room (session/room.h).
inline constexpr std::int64_t kAnyMemory = -1;

// The bytes of the limit; 0: it has none.
inline std::int64_t limit_in_bytes(const Place& place) {
  return std::max<std::int64_t>(0, place.memory_limit_bytes);
}

}  // namespace tracestep
