// A reader of comma-separated values; cells stay text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tracestep {

struct CsvRow {
  std::vector<std::string> cells;
  std::size_t line = 1;       // in which it begins
  bool begins_table = false;  // the first one, and those behind an empty line
};

// Rows of cells, the row of column names first; empty lines are skipped. RFC 4180: cells in quotes
// may hold commas, line ends and doubled quotes. Error{kInput} naming `name`, and line and column
// of what is wrong: bytes that are no text, a quote that nothing closes; also beyond 2^20 cells.
std::vector<CsvRow> parse_csv_rows(std::string_view text, const std::string& name);
// The cells alone.
std::vector<std::vector<std::string>> parse_csv(std::string_view text, const std::string& name);

// A text as the writer puts it into a cell: escaped_bytes() of base/utf8.h, and behind an
// apostrophe where a spreadsheet would take it for a formula; one that is there already gets
// another.
std::string as_csv_text(std::string_view text);
// The inverse.
std::string from_csv_text(std::string_view cell);

}  // namespace tracestep
