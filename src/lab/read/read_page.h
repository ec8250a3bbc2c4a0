// Writes a recording as an HTML page to look at and to send to others: the answer, the work of one
// step along time or the bytes by holder, charts, and every table.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "lab/report/table.h"

namespace tracestep {

inline constexpr const char* kReadSchema = "tracestep.read/1";

// The page as text. `tables`: the command's tables, in the order of its answers. A table "step"
// (step_table()) or "stack@…" (snapshot_stack()) is drawn so that it can be searched and enlarged.
// The page loads nothing from a network.
std::string read_page(const std::string& title, std::vector<Table> tables, const Json& environment);

}  // namespace tracestep
