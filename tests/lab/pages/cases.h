// The cases of answers: tables in cases/NAME.md, and what is said of them.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "lab/report/table.h"

namespace tracestep::pages {

using Row = std::vector<std::pair<std::string, Json>>;

// A case of cases/NAME.md, of results with the schema tracestep.NAME/1:
//   = a name, like another case    begins with the rows of the other one
//   bench: size tiny; mode step    adds a row to a table, or with `again` one like the last row
//   bench 1: std_ms -              changes cells of a row, or of all: here it has no such column
//   > What is said of these rows.
// Cells are those of support/tables.h. `machine` is where they were measured.
struct Case {
  std::string schema, name, sentence;
  std::vector<std::pair<std::string, std::vector<Row>>> tables = {
      {"machine",
       {{{"cores", 2}, {"memory_total_bytes", 4096}, {"device_memory_limit_bytes", 2147483648}}}}};

  std::vector<Row>& rows(const std::string& table) {
    const auto found = std::ranges::find(tables, table, &decltype(tables)::value_type::first);
    return found == tables.end() ? tables.emplace_back(table, std::vector<Row>()).second
                                 : found->second;
  }
};

// Returns the cases of all files.
const std::vector<Case>& cases();

// Makes tables of the machine and the others, with the columns of the first row that has them.
std::vector<Table> tables_of(const Case& c);

}  // namespace tracestep::pages
