// Interprets the memory limit of a run (Place::memory_limit_bytes). A number of bytes can only make
// the device smaller; what the machine has free limits it too.
#pragma once

#include <algorithm>
#include <cstdint>

#include "run/run_spec.h"

namespace tracestep {

// A value of the limit that is no number of bytes: the run starts without a check that the machine
// has room (session/room.h).
inline constexpr std::int64_t kAnyMemory = -1;

// Returns the limit in bytes; 0: there is none.
inline std::int64_t limit_in_bytes(const Place& place) {
  return std::max<std::int64_t>(0, place.memory_limit_bytes);
}

}  // namespace tracestep
