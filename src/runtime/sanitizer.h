// Tells the address sanitizer which bytes must not be accessed; does nothing in other builds.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__) && !defined(TRACESTEP_ASAN)
#define TRACESTEP_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(TRACESTEP_ASAN)
#define TRACESTEP_ASAN 1
#endif
#endif

#ifdef TRACESTEP_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace tracestep {

// Makes the sanitizer report any access to these bytes. A function, not the sanitizer's macro,
// which does nothing in a file that is not instrumented.
inline void forbid_access([[maybe_unused]] const void* begin, [[maybe_unused]] std::int64_t bytes) {
#ifdef TRACESTEP_ASAN
  __asan_poison_memory_region(begin, static_cast<std::size_t>(bytes));
#endif
}

// Allows access again. Must be called before memory goes back to its source: poison remains.
inline void allow_access([[maybe_unused]] const void* begin, [[maybe_unused]] std::int64_t bytes) {
#ifdef TRACESTEP_ASAN
  __asan_unpoison_memory_region(begin, static_cast<std::size_t>(bytes));
#endif
}

}  // namespace tracestep
