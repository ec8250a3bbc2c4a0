// Indices into vectors with an entry for each node or value of a program.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tracestep {

// Returns the index of a node or value in a vector that has an entry for each: parts_[at(id)].
constexpr std::size_t at(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

}  // namespace tracestep
