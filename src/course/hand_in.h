// A hand-in of a study: its answers in the order of the handout's problems, with tables of size
// against context as handouts have them, and times of one's own beside ours and published ones.
#pragma once

#include <span>
#include <string>

#include "course/own_times.h"

namespace tracestep {

// The hand-in; `own` may be empty. `charts`: the folder of its pictures, beside it.
std::string course_page(const StudyReport& report, const Json& environment,
                        std::span<const OwnTime> own, Format format, const std::string& charts);

}  // namespace tracestep
