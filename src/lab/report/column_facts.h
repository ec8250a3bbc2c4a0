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

// Describes a column as JSON. Members with their default values are left out: "kind", "unit",
// "title", "description", "role", "part_of", "digits", "timing", "words", "asked_for" (a screen
// shows the column first; it is not read back), and "shown", which is "no" or "if it varies".
Json facts_of(const Column& column);
// Reads a column from its facts_of(). A column whose result does not say its kind is kText.
Column column_of(const std::string& name, const Json& facts);

// Guesses the kind of a column from its values, for results that do not name it.
ColumnKind kind_of(std::span<const Json> values, bool are_bytes);

// Reads a table of a JSON result: {"columns", "rows", "title", "notes"}. Throws Error{kInput}
// naming `where` if it is no table, if rows have different columns, or if a cell is not of its
// column's kind.
Table table_of(const std::string& name, const Json& json, const std::string& where);
// Adds the rows and the notes of a table of a JSON result to a table that has its columns.
void add_rows(const Json& json, const std::string& where, Table& out);
// Reads all tables of a result; `primary`: the name of the only one, if the result does not say it.
std::vector<Table> tables_of(const Json& document, const std::string& where,
                             std::string_view primary = {});

}  // namespace tracestep
