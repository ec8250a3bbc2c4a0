// The ways to run a program.
#pragma once

#include <cstdint>
#include <string_view>

namespace tracestep {

enum class ExecutorKind : std::uint8_t {
  kEager,     // launch by launch; buffers from the device's allocator
  kCompiled,  // one arena; launches are captured where the device supports it
};
inline constexpr ExecutorKind kAllExecutors[] = {ExecutorKind::kEager, ExecutorKind::kCompiled};

constexpr std::string_view name_of(ExecutorKind kind) {
  return kind == ExecutorKind::kEager ? "eager" : "compiled";
}

}  // namespace tracestep
