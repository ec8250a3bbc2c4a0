// Names that fit beside a bar.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace tracestep {

// Long names, those of kernels above all, without return type and namespaces; of several that begin
// alike the beginning and what follows the part that they share. At most 38 characters each.
std::vector<std::string> short_names(std::span<const std::string> names);

}  // namespace tracestep
