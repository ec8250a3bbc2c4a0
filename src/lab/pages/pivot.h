// Arranges rows as a table with one key across, for example model size against context, as course
// handouts do.
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
  std::vector<std::string> down = {};  // Key columns whose values identify the rows.
  std::string across = {};             // The key column whose values become columns.
  // The column with the values; of samples, the mean and the standard deviation are shown.
  std::string value = {};
  // Column and text that rows must have.
  std::vector<std::pair<std::string, std::string>> where = {};
  // The order of sizes; sizes that are not named keep the order of the rows.
  std::vector<std::string> order = {};
};

// Builds the table "pivot" from the rows of these tables. Numeric keys are sorted by value. A value
// is formatted for people: "25.4 ± 0.9 ms", "1.50 GiB", "OOM". Bytes that do not fit are marked,
// and a note says what they exceed; another note gives the number of samples of a mean. Each value
// comes from one row; rows that would fall into one row of the pivot but differ in another key get
// that key as a further column. A run in an earlier table takes precedence over the same run in a
// later one. Throws Error{kInput} if two rows of a table agree in all keys. Has no rows if no table
// has these columns.
Table pivoted(const Pivot& pivot, std::span<const Table* const> tables);

// Returns the cell of a column in a row of the table; nullptr if the table has no such column.
const Json* cell_in(const Table& table, const std::vector<Json>& row, std::string_view column);
// Returns a text without quotes, another value as JSON, and an empty cell as "".
std::string words_of(const Json& cell);
// Returns the numbers of a list; empty if the value is no list of numbers.
std::vector<double> numbers_in(const Json& list);

}  // namespace tracestep::pages
