// Names that fit beside a bar.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace tracestep {

// Names, above all of kernels, without return type and namespaces, in at most 36 characters each:
// of long ones that begin alike, the beginning and what follows the part that they share.
std::vector<std::string> short_names(std::span<const std::string> names);

}  // namespace tracestep
