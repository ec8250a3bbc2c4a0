// A hand-in of the course, made from a study: its answers in the order of the handout's problems,
// with tables of size against context as the handout has them, and the user's own times beside ours
// and published ones.
#pragma once

#include <span>
#include <string>

#include "course/own_times.h"

namespace tracestep {

// The hand-in as text; `own` may be empty. `charts`: the folder of its pictures, next to its file.
std::string course_page(const StudyReport& report, const Json& environment,
                        std::span<const OwnTime> own, Format format, const std::string& charts);

}  // namespace tracestep
