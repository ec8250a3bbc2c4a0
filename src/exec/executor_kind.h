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

// When a device that can choose launches the kernels of captured steps.
enum class LaunchOrder : std::uint8_t {
  kSerial,     // each when all before it have ended
  kDependent,  // while the one before it still runs, where the kernel itself waits for its end
};
inline constexpr LaunchOrder kAllLaunchOrders[] = {LaunchOrder::kSerial, LaunchOrder::kDependent};

constexpr std::string_view name_of(LaunchOrder order) {
  return order == LaunchOrder::kSerial ? "serial" : "dependent";
}

constexpr bool has_arena(ExecutorKind kind) {
  return kind != ExecutorKind::kEager;
}

}  // namespace tracestep
