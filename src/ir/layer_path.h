// The paths of a model's layers: "layers.3.attn.softmax" is in the scope "layers.3".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tracestep {

inline constexpr std::string_view kLayersPath = "layers";

// "layers.3"
inline std::string layer_path(std::int64_t index) {
  return std::string(kLayersPath) + "." + std::to_string(index);
}

// The layer that a path is in, "layers.3"; empty for a path outside all layers.
inline std::string_view layer_of(std::string_view path) {
  const std::size_t start = kLayersPath.size() + 1;
  if (!path.starts_with(kLayersPath) || path.size() < start || path[start - 1] != '.') return {};
  return path.substr(0, path.find('.', start));
}

}  // namespace tracestep
