// Text compressed as gzip does it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tracestep {

std::string gzip(std::string_view text);
// The inverse. Error{kInput} for what is no gzip data, and for more than `max_bytes` of text: a
// thousand bytes can stand for a million.
std::string gunzip(std::string_view data, std::size_t max_bytes = std::size_t{1} << 30);

}  // namespace tracestep
