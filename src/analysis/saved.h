// Finds what a step saves for backward: the one definition that the buffer plan, the ledger,
// `keep_saved` and every table read.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/program.h"

namespace tracestep {

// A value from a forward node that a backward or recomputed node reads, directly or through views.
struct Saved {
  ValueId value = kNoValue;  // The base value, which owns the bytes; views of it are not listed.
  NodeId producer = kNoNode;
  std::int64_t bytes = 0;
  // The nodes of backward that read it, in order; empty: it is an output `saved.N`.
  std::vector<NodeId> readers = {};
};

// Returns the saved values in program order, in O(nodes). Parameters and inputs are not listed,
// as they exist anyway. In a program without backward (mode `forward`), they are the outputs
// `saved.N`, which backward would have read.
std::vector<Saved> saved_for_backward(const Program& program);

// The prefix of the outputs `saved.N` in a program without backward.
inline constexpr std::string_view kSavedOutput = "saved.";

std::int64_t saved_bytes(const Program& program);

}  // namespace tracestep
