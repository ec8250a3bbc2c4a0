// Texts line by line: wrapped, and compared.
#pragma once

#include <string>
#include <string_view>

namespace tracestep::cli {

// Wraps `text` into lines of at most 100 columns, for help texts and generated pages. The first
// line starts with `lead`, and the others are indented by `indent` columns; a lead that is longer
// gets its own line. Ends with a newline.
std::string wrapped(std::string lead, std::size_t indent, std::string_view text);

// The line-by-line difference of two printed programs: lines of `a` and `b` after a mark "-", "+"
// or " ", and three lines around each change. One new line renumbers all later values, so value
// numbers are ignored when lines are compared. Empty if nothing differs. Costs O(lines ·
// differences).
std::string program_diff(std::string_view a, std::string_view b);

}  // namespace tracestep::cli
