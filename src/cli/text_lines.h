// Texts line by line: wrapped, and compared.
#pragma once

#include <string>
#include <string_view>

namespace tracestep::cli {

// Text in lines of at most 100 columns: for help texts and generated pages. The words of `text`
// after `lead`, all lines indented by `indent` columns. A longer lead gets its own line. Ends with
// a newline.
std::string wrapped(std::string lead, std::size_t indent, std::string_view text);

// The difference of two printed programs, line by line. Lines of `a` and `b` with "-", "+" or " "
// in front, and three lines around each change. Values are numbered in order, so one new line
// renumbers all later ones: value numbers are ignored when lines are compared. Empty when nothing
// differs. Cost O((lines) · (differences)).
std::string program_diff(std::string_view a, std::string_view b);

}  // namespace tracestep::cli
