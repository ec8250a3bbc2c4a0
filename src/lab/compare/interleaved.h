// Two commands run in pairs, several times each, so that what changes on a machine (heat, clocks,
// other work) meets both sides alike.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/json.h"

namespace tracestep {

// True if B runs first in the i-th pair, from 0: the toss of a coin, so that no drift and no rhythm
// of the machine can favour one of them. The same seed gives the same tosses.
bool is_b_first(int pair, std::uint64_t seed);

// The results of one command from several processes as one document: rows at the same place joined
// by merged_row(), in every table that has as many of them in each; everything else from the first.
// Error{kFailed} naming `where` when they do not have the same schema, or first tables of the same
// number of rows.
Json merged_result(std::span<const Json> documents, const std::string& where);

}  // namespace tracestep
