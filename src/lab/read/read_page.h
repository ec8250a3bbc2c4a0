// A recording as a page to look at and to send around: the answer, the work of one step along time
// or the bytes by who holds them, charts, and every table.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "lab/report/table.h"

namespace tracestep {

inline constexpr const char* kReadSchema = "tracestep.read/1";

// `tables`: those of the command, the first answers that are asked for; with a "step"
// (step_table()) or a "stack@…" (snapshot_stack()) in them these are drawn, and can be searched and
// looked at closely. The page asks nothing of a network.
std::string read_page(const std::string& title, std::vector<Table> tables, const Json& environment);

}  // namespace tracestep
