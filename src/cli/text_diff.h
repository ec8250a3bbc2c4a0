// The difference of two printed programs, line by line.
#pragma once

#include <string>
#include <string_view>

namespace tracestep::cli {

// Lines of `a` and `b` with "-", "+" or " " in front, and three lines around each change. Values
// are numbered in order, so one new line renumbers all later ones: value numbers are ignored when
// lines are compared. Empty when nothing differs. Cost O((lines) · (differences)).
std::string program_diff(std::string_view a, std::string_view b);

}  // namespace tracestep::cli
