// The checker's verdicts for people: a mark in front of each row, and below the table once and in
// words what the marks are for. Results keep the codes.
#pragma once

#include "lab/report/table.h"

namespace tracestep {

// Puts the marks in place of the verdicts of a table that the checker has judged, and the reasons
// in place of its notes.
void mark_verdicts(Table& table, bool has_utf8);

}  // namespace tracestep
