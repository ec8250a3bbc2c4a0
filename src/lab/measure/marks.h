// The checker's verdicts for people: a mark in front of each row, and below the table once and in
// words what the marks are for. Results keep the codes.
#pragma once

#include <string_view>

#include "lab/measure/validity.h"
#include "lab/report/table.h"

namespace tracestep {

enum class Mark {
  kNone,        // not measured
  kSound,       // notes at most
  kNoisy,       // less certain than it looks
  kImpossible,  // contradicts arithmetic, beyond what noise explains
};
// Grades the summary of a row's verdicts (validity.h); answers of a study use it as well.
Mark mark_of(std::string_view verdict);

// Puts the marks in place of the verdicts of a table that the checker has judged, and the reasons
// in place of its notes.
void mark_verdicts(Table& table, bool has_utf8);

}  // namespace tracestep
