// A table with the values of one key across: size against context, as handouts have it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/report/table.h"

namespace tracestep::pages {

struct Pivot {
  std::string title = {};
  std::vector<std::string> down = {};  // columns of keys
  std::string across = {};             // a column of keys
  std::string value = {};  // a column; of samples, the mean and the standard deviation are shown
  std::vector<std::pair<std::string, std::string>> where = {};  // column, text: of the rows
  std::vector<std::string> order = {};  // of sizes; those that are not named come as they are
};

// The table "pivot" of the rows of these tables. Keys that are numbers stand by their size; a cell
// reads as people read its value: "25.4 ± 0.9 ms", "1.50 GiB", "OOM"; bytes that do not fit are
// marked, and a note says what they exceed; another how many samples a mean is of. A cell is one
// row of the tables, and all cells of a row are alike in every key but the one across: keys in
// which they would differ go down as well. A run of an earlier table stands for the same one in a
// later table. Error{kInput}: two rows of a table are alike in all keys. No rows where no table has
// such columns.
Table pivoted(const Pivot& pivot, std::span<const Table* const> tables);

// The cell in a row of the table; nullptr: the table has no such column.
const Json* cell_in(const Table& table, const std::vector<Json>& row, std::string_view column);
// A text as it is, other values as JSON, an empty cell as "".
std::string words_of(const Json& cell);
// The numbers of a list; empty: it is none.
std::vector<double> numbers_in(const Json& list);

}  // namespace tracestep::pages
