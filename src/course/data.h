// Looks up figures in the files of data/ by the cells of their rows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tracestep::published {

// The number in `column` of the one row of a file that has all of `cells`: "small" in any column,
// "context=128" in that one. CHECKs that the file and the column are there, and exactly one such
// row.
double number_at(std::string_view file, std::string_view column,
                 const std::vector<std::string>& cells);

}  // namespace tracestep::published
