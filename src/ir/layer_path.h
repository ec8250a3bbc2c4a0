// The paths of a model's layers: "layers.3.attn.softmax" is in the scope "layers.3".
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace tracestep {

inline constexpr std::string_view kLayersPath = "layers";

// Returns the path of a layer: "layers.3".
inline std::string layer_path(std::int64_t index) {
  return std::string(kLayersPath) + "." + std::to_string(index);
}

// Returns the path up to its first part that is a number, which names a block of the model:
// "layers.3" for "layers.3.attn", "model.h.3" in a user's module. Empty: no part is a number.
inline std::string_view layer_of(std::string_view path) {
  for (std::size_t start = 0; start < path.size();) {
    const std::size_t end = std::min(path.find('.', start), path.size());
    const std::string_view part = path.substr(start, end - start);
    if (!part.empty() && part.find_first_not_of("0123456789") == part.npos) {
      return path.substr(0, end);
    }
    start = end + 1;
  }
  return {};
}

}  // namespace tracestep
