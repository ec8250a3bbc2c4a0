// Comma-separated values, read back as text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tracestep {

// Rows of cells, the columns' names first; lines without anything are left out. RFC 4180: cells in
// quotes may hold commas, line ends and doubled quotes. Error{kInput} naming `name` beyond 2^20
// cells.
std::vector<std::vector<std::string>> parse_csv(std::string_view text, const std::string& name);

}  // namespace tracestep
