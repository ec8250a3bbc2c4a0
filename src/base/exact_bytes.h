// A number of bytes as text that says it exactly.
#pragma once

#include <cstdint>
#include <string>

namespace tracestep {

// With the largest unit of which it is a whole number: "25MiB", "1536KiB", "7B".
std::string exact_bytes(std::int64_t bytes);

}  // namespace tracestep
