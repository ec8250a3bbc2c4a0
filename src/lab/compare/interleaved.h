// Two commands run in turns, several times each, so that what changes slowly on a machine (heat,
// clocks, other work) meets both sides alike.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"

namespace tracestep {

// Whose turn the i-th run is, from 0: A B B A, A B B A … `count` processes of each side are over
// after 2 · count turns.
bool is_turn_of_b(int turn);

// The results of one command from several processes as one document: rows by their place, joined by
// merged_row(), everything else from the first. Error{kFailed} naming `where` when they do not have
// the same schema and the same number of rows.
Json merged_result(std::span<const Json> documents, const std::string& where);

}  // namespace tracestep
