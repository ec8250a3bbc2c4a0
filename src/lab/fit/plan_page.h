// Writes a plan as an HTML page to send to others: the answer, the bytes of its step beside the
// device's limit, where its time goes, what each change costs, and the commands that run it.
#pragma once

#include <string>
#include <vector>

#include "lab/fit/remedy.h"
#include "lab/report/table.h"

namespace tracestep {

inline constexpr const char* kFitSchema = "tracestep.fit/1";

// The page as text. `tables`: the command's tables, in the order of its answers; `plans`: the
// proposed steps, the best first, of which the first is drawn. The page is one file and loads
// nothing from a network.
std::string plan_page(const FitQuestion& question, const std::vector<Remedy>& plans,
                      std::vector<Table> tables, const Json& environment);

}  // namespace tracestep
