// Tables read back from a JSON result. It says of a column, besides its cells, all that a writer
// needs to show it as it was shown, and what those that read results need to know of it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "lab/report/table.h"

namespace tracestep {

// Members that are as usual are left out. "kind", "unit", "title", "description", "role",
// "part_of", "digits", "timing", "words", "asked_for" (what a screen shows first, which is not read
// back), and "shown": "no" or "if it varies".
Json facts_of(const Column& column);
// The inverse of facts_of(). A column whose result does not say its kind is kText.
Column column_of(const std::string& name, const Json& facts);

// The kind of a column whose values are these, for results that do not say it.
ColumnKind kind_of(std::span<const Json> values, bool are_bytes);

// A table as a JSON result has it: {"columns", "rows", "title", "notes"}. Error{kInput} naming
// `where`: it is none, its rows differ in their columns, or cells are not of their column's kind.
Table table_of(const std::string& name, const Json& json, const std::string& where);
// Adds the rows and notes alone, for a table that has its columns.
void add_rows(const Json& json, const std::string& where, Table& out);
// All tables of a result; `primary`: the name of the only one, where the result does not say it.
std::vector<Table> tables_of(const Json& document, const std::string& where,
                             std::string_view primary = {});

}  // namespace tracestep
