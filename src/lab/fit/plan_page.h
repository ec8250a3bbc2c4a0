// A plan as a page to send around: the answer, the bytes of its step with the device's end, where
// its time goes, what each change costs, and the commands that run it.
#pragma once

#include <string>
#include <vector>

#include "lab/fit/remedy.h"
#include "lab/report/table.h"

namespace tracestep {

inline constexpr const char* kFitSchema = "tracestep.fit/1";

// `tables`: those of the command, the first answers that are asked for; `plans`: the steps that
// they propose, the best first, of which the first is drawn. A page of its own file, which asks
// nothing of a network.
std::string plan_page(const FitQuestion& question, const std::vector<Remedy>& plans,
                      std::vector<Table> tables, const Json& environment);

}  // namespace tracestep
