#include "analysis/component.h"

namespace tracestep {

std::string component_of(std::string_view path) {
  if (path.empty()) return "program";
  if (path.starts_with("layers.")) {
    const std::size_t after = path.find('.', 7);
    path = after == std::string_view::npos ? "layers" : path.substr(after + 1);
  }
  if (path.ends_with(".weight")) path.remove_suffix(7);
  return std::string(path);
}

}  // namespace tracestep
