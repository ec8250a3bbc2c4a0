// Text compressed as gzip does it.
#pragma once

#include <string>
#include <string_view>

namespace tracestep {

std::string gzip(std::string_view text);
// The inverse. Error{kInput} for what is no gzip data.
std::string gunzip(std::string_view data);

}  // namespace tracestep
