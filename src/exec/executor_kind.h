// The ways to run a program.
#pragma once

#include <cstdint>
#include <string_view>

namespace tracestep {

enum class ExecutorKind : std::uint8_t {
  kEager,     // node by node, buffers from the device's allocator
  kCompiled,  // one arena, every launch resolved before the first run
};
inline constexpr ExecutorKind kAllExecutors[] = {ExecutorKind::kEager, ExecutorKind::kCompiled};

constexpr std::string_view name_of(ExecutorKind kind) {
  return kind == ExecutorKind::kEager ? "eager" : "compiled";
}

}  // namespace tracestep
