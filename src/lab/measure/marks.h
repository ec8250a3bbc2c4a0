// Shows the validity checker's verdicts to people: each row gets a mark, and a note below the table
// explains the marks. Stored results keep the codes instead.
#pragma once

#include "lab/report/table.h"

namespace tracestep {

// Replaces the verdicts of a judged table by marks, and its notes by the reasons.
void mark_verdicts(Table& table, bool has_utf8);

}  // namespace tracestep
