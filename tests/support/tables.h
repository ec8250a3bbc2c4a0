// Cells of tables: read by name, and written as a person does: "size tiny; std_ms -; samples_ms
// 212.0 × 6".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/report/table.h"

namespace tracestep::testing {

// The cell of a row; of the first row that has `key` in column `by`, or in the first column. CHECKs
// that it is there.
const Json& cell(const Table& table, std::size_t row, std::string_view column);
const Json& cell(const Table& table, std::string_view by, const Json& key, std::string_view column);
const Json& cell(const Table& table, const Json& key, std::string_view column);

// Reads columns and their cells; nullopt for "-", a column that is not there. A cell is a text, or
// JSON; "212.0 × 6" is a list of six.
std::vector<std::pair<std::string, std::optional<Json>>> cells_in(std::string_view text);

// Sets these members of an object; those that are not there become null.
void change_cells(Json& row, std::string_view text);

}  // namespace tracestep::testing
