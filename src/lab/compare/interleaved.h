// Supports running two commands alternately in pairs, so that changes of the machine (heat, clocks,
// other work) affect both sides alike.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/json.h"

namespace tracestep {

// True if B runs first in the i-th pair, from 0: the toss of a coin, so that no drift and no rhythm
// of the machine can favour one of them. The same seed gives the same tosses.
bool is_b_first(int pair, std::uint64_t seed);

// Joins results of one command from several processes into one document. In each table that has
// equally many rows in all of them, rows at the same place are joined by merged_row(); everything
// else comes from the first. Throws Error{kFailed} naming `where` if the schemas, or the numbers of
// rows in the first tables, differ.
Json merged_result(std::span<const Json> documents, const std::string& where);

}  // namespace tracestep
