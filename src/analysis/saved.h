// Finds what a step saves for backward: the one definition that the buffer plan, the ledger,
// `keep_saved` and every table read.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/program.h"

namespace tracestep {

// A value that a forward node made and that a backward node, or one that runs again in backward,
// reads, directly or through views.
struct Saved {
  ValueId value = kNoValue;  // the base: what owns the bytes; views of it are not listed
  NodeId producer = kNoNode;
  std::int64_t bytes = 0;
  std::vector<NodeId> readers = {};  // nodes in backward, in order; empty: an output `saved.N`
};

// In program order. Parameters and inputs are not listed: they are alive anyway. In a program
// without backward (mode `forward`), the outputs `saved.N` are what it would have read. O(nodes).
std::vector<Saved> saved_for_backward(const Program& program);

// Prefix of the outputs `saved.N` of a program without backward.
inline constexpr std::string_view kSavedOutput = "saved.";

std::int64_t saved_bytes(const Program& program);

}  // namespace tracestep
