// What a program sends between ranks.
#pragma once

#include <cstdint>

#include "ir/program.h"

namespace tracestep {

// Bytes that rank `rank` gets from the others in a run (ops/collective_sizes.h).
std::int64_t received_bytes(const Program& program, std::int64_t rank);
// The same for one node; 0 where it is no collective.
std::int64_t received_bytes(const Program& program, const Node& node, std::int64_t rank);

}  // namespace tracestep
