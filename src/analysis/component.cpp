#include "analysis/origins.h"

#include "ir/layer_path.h"

namespace tracestep {

std::string component_of(std::string_view path) {
  if (path.empty()) return "program";
  if (const std::string_view layer = layer_of(path); !layer.empty()) {
    path = layer == path ? layer.substr(0, layer.rfind('.')) : path.substr(layer.size() + 1);
  }
  for (const std::string_view parameter : {".weight", ".bias", ".deviation"}) {
    if (path.ends_with(parameter)) path.remove_suffix(parameter.size());
  }
  return std::string(path);
}

}  // namespace tracestep
