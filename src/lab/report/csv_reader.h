// A reader of comma-separated values; cells stay text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tracestep {

// Rows of cells, the row of column names first; empty lines are skipped. RFC 4180: cells in quotes
// may hold commas, line ends and doubled quotes. Error{kInput} naming `name` beyond 2^20 cells.
std::vector<std::vector<std::string>> parse_csv(std::string_view text, const std::string& name);

}  // namespace tracestep
