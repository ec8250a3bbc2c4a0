// The ways to run a program.
#pragma once

#include <cstdint>
#include <string_view>

namespace tracestep {

enum class ExecutorKind : std::uint8_t {
  kEager,     // launch by launch; buffers from the device's allocator
  kArena,     // launch by launch; buffers at planned offsets in one arena
  kCompiled,  // the same, and launches are captured where the device supports it
};
inline constexpr ExecutorKind kAllExecutors[] = {ExecutorKind::kEager, ExecutorKind::kArena,
                                                 ExecutorKind::kCompiled};

constexpr std::string_view name_of(ExecutorKind kind) {
  switch (kind) {
    case ExecutorKind::kEager: return "eager";
    case ExecutorKind::kArena: return "arena";
    case ExecutorKind::kCompiled: return "compiled";
  }
  return "?";
}

constexpr bool has_arena(ExecutorKind kind) {
  return kind != ExecutorKind::kEager;
}

}  // namespace tracestep
